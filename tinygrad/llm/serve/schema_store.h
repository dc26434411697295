/// \file The JSON schemas that requests brought lately, compiled, with their masks: conversations under one schema
/// share them.
#pragma once
#include <cstddef>
#include <list>
#include <mutex>
#include <string>

#include "tinygrad/llm/json_constraint.h"

namespace tg::llm {

class SchemaStore {
 public:
  /// Most schemas that are kept, and the longest text of one that is.
  static constexpr size_t kMaxSchemas = 8, kMaxSchemaBytes = 256 << 10;

  /// Returns a compiled schema; ValueError where it cannot be enforced. Copies of it share their masks.
  JsonSchema compiled(const Value& schema, const SchemaOptions& options);
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::list<std::pair<std::string, JsonSchema>> all_;  // by text and options, the latest first
};

}  // namespace tg::llm
