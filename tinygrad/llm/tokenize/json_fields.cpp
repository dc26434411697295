#include "tinygrad/llm/tokenize/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace tg::llm {
namespace {

/// Returns how deep lists and objects are nested at most.
int depth_of(std::string_view text) {
  int depth = 0, most = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') i++;
      else quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if (c == ']' || c == '}') {
      depth--;
    }
  }
  return most;
}

const Json kNull;

}  // namespace

Json parse_json(std::string_view text, std::string_view name, std::string_view op) {
  TG_CHECK(FormatError, text.size() <= kMaxJsonBytes, "[", op, "] ", name, ": got ", text.size(),
           " bytes, expected at most ", kMaxJsonBytes);
  TG_CHECK(FormatError, depth_of(text) <= kMaxJsonDepth, "[", op, "] ", name, ": got JSON that is nested too deeply");
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) { throw FormatError(str("[", op, "] ", name, ": ", e.what())); }
}

const Json& JsonFields::optional(const Json& owner, std::string_view key) const {
  check(owner.is_object(), key, "no object that it could be in");
  const auto at = owner.find(std::string(key));
  return at == owner.end() ? kNull : *at;
}
const Json& JsonFields::field(const Json& owner, std::string_view key) const {
  const Json& value = optional(owner, key);
  check(!value.is_null(), key, "nothing");
  return value;
}
std::string JsonFields::text(const Json& owner, std::string_view key) const {
  const Json& value = field(owner, key);
  check(value.is_string(), key, "no text");
  return value.get<std::string>();
}
std::string JsonFields::text(const Json& owner, std::string_view key, std::string fallback) const {
  return optional(owner, key).is_null() ? std::move(fallback) : text(owner, key);
}
bool JsonFields::flag(const Json& owner, std::string_view key, bool fallback) const {
  const Json& value = optional(owner, key);
  if (value.is_null()) return fallback;
  check(value.is_boolean(), key, "neither true nor false");
  return value.get<bool>();
}
int64_t JsonFields::number(const Json& owner, std::string_view key) const {
  const Json& value = field(owner, key);
  check(value.is_number_integer(), key, "no whole number");
  return value.get<int64_t>();
}
int64_t JsonFields::number(const Json& owner, std::string_view key, int64_t fallback) const {
  return optional(owner, key).is_null() ? fallback : number(owner, key);
}
double JsonFields::real(const Json& owner, std::string_view key, double fallback) const {
  const Json& value = optional(owner, key);
  if (value.is_null()) return fallback;
  check(value.is_number(), key, "no number");
  return value.get<double>();
}
int64_t JsonFields::number_of_pair(const Json& owner, std::string_view key) const {
  const Json& pair = field(owner, key);
  check(pair.is_array() && pair.size() == 2 && pair[1].is_number_integer(), key, "no pair of a text and a number");
  return pair[1].get<int64_t>();
}

std::vector<uint8_t> JsonFields::base64(std::string_view text) const {
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    uint32_t value = 64;
    if (c >= 'A' && c <= 'Z') value = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z') value = static_cast<uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9') value = static_cast<uint32_t>(c - '0') + 52;
    else if (c == '+' || c == '/') value = c == '+' ? 62 : 63;
    check(value < 64, "precompiled_charsmap", "text that is not base64");
    bits = bits << 6 | value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> count));
  }
  return bytes;
}

std::vector<const Json*> JsonFields::flattened(const Json& component, std::string_view list) const {
  std::vector<const Json*> found, todo;
  if (!component.is_null()) todo.push_back(&component);
  while (!todo.empty()) {
    const Json& c = *todo.back();
    todo.pop_back();
    if (text(c, "type") != "Sequence") {
      found.push_back(&c);
      continue;
    }
    const Json& members = field(c, list);
    check(members.is_array() && members.size() <= 256, list, "no list, or a long one");
    for (size_t i = members.size(); i-- > 0;) todo.push_back(&members[i]);
  }
  return found;
}

}  // namespace tg::llm
