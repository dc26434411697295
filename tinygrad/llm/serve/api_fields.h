/// \file The fields of a JSON object that a client sent, each with its type and range. A field that is absent or null
/// has its default.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/value.h"

namespace tg::llm {

class ApiFields {
 public:
  /// `path` names the object in messages, such as "messages[2]"; empty: the body. ApiError unless it is an object.
  explicit ApiFields(const Value& object, std::string path = {});

  /// Returns a field; nullptr when it is absent or null.
  const Value* find(std::string_view name) const;
  /// Return a field of a type and range, ApiError (400) that names it otherwise.
  std::string text(std::string_view name, std::string_view missing = {}) const;
  std::string required_text(std::string_view name) const;
  bool flag(std::string_view name, bool missing) const;
  int64_t integer(std::string_view name, int64_t least, int64_t greatest, int64_t missing) const;
  double number(std::string_view name, double least, double greatest, double missing) const;
  /// Returns a string as a list of one, or a list of strings; none may be empty or longer than `max_bytes`.
  std::vector<std::string> texts(std::string_view name, size_t max_items, size_t max_bytes) const;
  /// Returns an object or list; nothing when it is absent.
  std::optional<Value> object(std::string_view name) const;
  std::optional<Value> list(std::string_view name, size_t max_items) const;

  /// Refuses a field that no call asked for and that `ignored` does not name: passing over it could change the answer.
  /// Comes after all reads.
  void refuse_others(std::span<const std::string_view> ignored = {}) const;

  std::string path_of(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view expected) const;

 private:
  Value object_;
  std::string path_;
  mutable std::set<std::string, std::less<>> asked_;  ///< fields that were read
};

/// Throws an ApiError (400) that names a field and says what is wrong.
[[noreturn]] void refuse_field(const std::string& path, std::string_view what);

/// Returns token ids of a list, each below `vocabulary`; ApiError that names `path`.
std::vector<int32_t> api_tokens(const Value& list, int64_t vocabulary, const std::string& path);

}  // namespace tg::llm
