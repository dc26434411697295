/// \file What lists, dictionaries and callables of Value hold; for the files that make them.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "tinygrad/llm/value.h"

namespace tg::llm {

struct Sequence {
  std::vector<Value> items;
  int depth = 1;
  /// Of a view: what Python prints around the items ("dict_items"), or all it prints ("range(0, 3)").
  std::string label;
  bool lazy = false;         ///< a generator: it is always true, has no length and can be gone through once
  mutable size_t taken = 0;  ///< items of a generator that are gone
};

struct Mapping {
  std::vector<Value::Entry> entries;
  std::unordered_map<std::string, size_t> index;  ///< of string keys; filled above kIndexedEntries
  int depth = 1;
  static constexpr size_t kIndexedEntries = 8;
};

struct Callable {
  enum class Type : uint8_t { function, method, macro, caller };
  Type type = Type::function;
  std::string name;
  Value self;                   ///< of a method
  const void* macro = nullptr;  ///< the template's macro or call block
  int64_t scope = 0;            ///< where the macro was defined
};

}  // namespace tg::llm
