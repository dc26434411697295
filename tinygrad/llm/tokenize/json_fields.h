/// \file Fields of tokenizer.json with their types checked.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::llm {

using Json = nlohmann::json;

inline constexpr size_t kMaxJsonBytes = size_t(1) << 28;
inline constexpr int kMaxJsonDepth = 32;

/// Parses a document. FormatError `[op] name: ...` for one that is too long, nested too deeply, or not JSON.
Json parse_json(std::string_view text, std::string_view name, std::string_view op = "tokenizer");

/// Reads fields; each FormatError names the file and the field.
struct JsonFields {
  explicit JsonFields(std::string_view file, std::string_view of = "tokenizer") : name(file), op(of) {}
  std::string name, op;

  void check(bool ok, std::string_view field, const std::string& got) const {
    if (!ok) [[unlikely]]
      throw FormatError(str("[", op, "] ", name, ": ", field, ": got ", got));
  }
  [[noreturn]] void unknown(std::string_view what, std::string_view type) const {
    throw FormatError(str("[", op, "] ", name, ": ", what, ": got ", type.substr(0, 100), ", which is not supported"));
  }
  const Json& field(const Json& owner, std::string_view key) const;
  const Json& optional(const Json& owner, std::string_view key) const;  ///< null when it is missing
  std::string text(const Json& owner, std::string_view key) const;
  std::string text(const Json& owner, std::string_view key, std::string fallback) const;
  bool flag(const Json& owner, std::string_view key, bool fallback) const;
  int64_t number(const Json& owner, std::string_view key) const;
  int64_t number(const Json& owner, std::string_view key, int64_t fallback) const;
  double real(const Json& owner, std::string_view key, double fallback) const;
  int64_t number_of_pair(const Json& owner, std::string_view key) const;  ///< of ["text", number]
  std::vector<uint8_t> base64(std::string_view text) const;
  /// Returns a component, or those of a Sequence of Sequences in order; nothing for null. `list`: where they stand.
  std::vector<const Json*> flattened(const Json& component, std::string_view list) const;
};

}  // namespace tg::llm
