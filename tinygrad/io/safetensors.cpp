/// \file The header of safetensors files.
#include "tinygrad/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

using Json = nlohmann::ordered_json;

const std::pair<std::string_view, DType> kTypes[] = {
    {"BOOL", dtypes::bool_},    {"I8", dtypes::int8},         {"U8", dtypes::uint8},        {"I16", dtypes::int16},
    {"U16", dtypes::uint16},    {"I32", dtypes::int32},       {"U32", dtypes::uint32},      {"I64", dtypes::int64},
    {"U64", dtypes::uint64},    {"F8_E4M3", dtypes::fp8e4m3}, {"F8_E5M2", dtypes::fp8e5m2}, {"F16", dtypes::float16},
    {"BF16", dtypes::bfloat16}, {"F32", dtypes::float32},     {"F64", dtypes::float64}};

/// Parses at most three levels deep and rejects a name that occurs twice in one object.
Json parse(std::string_view text, std::string_view name) {
  std::vector<std::set<std::string>> open;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    TG_CHECK(FormatError, depth <= 4, "[safetensors] ", name, ": the header is nested too deeply");
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key)
      TG_CHECK(FormatError, open.back().insert(parsed.get<std::string>()).second, "[safetensors] ", name, ": ",
               parsed.dump(), " stands twice");
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& e) {
    throw FormatError(str("[safetensors] ", name, ": the header is no JSON: ", e.what()));
  }
}

uint64_t number(const Json& j, std::string_view name, const std::string& tensor) {
  TG_CHECK(FormatError, j.is_number_unsigned(), "[safetensors] ", name, ": got ", j.dump(), " in ", tensor,
           ", expected a number of 0 or more");
  return j.get<uint64_t>();
}

SafetensorsEntry entry(const std::string& tensor, const Json& j, uint64_t data_size, std::string_view name) {
  const bool complete = j.is_object() && j.contains("dtype") && j["dtype"].is_string() && j.contains("shape") &&
                        j["shape"].is_array() && j.contains("data_offsets") && j["data_offsets"].is_array() &&
                        j["data_offsets"].size() == 2;
  TG_CHECK(FormatError, complete, "[safetensors] ", name, ": ", tensor, " has no dtype, shape or data_offsets");
  SafetensorsEntry e{
      tensor, {}, {}, number(j["data_offsets"][0], name, tensor), number(j["data_offsets"][1], name, tensor)};
  const std::string type = j["dtype"].get<std::string>();
  const auto* t = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& k) { return k.first == type; });
  TG_CHECK(FormatError, t != std::end(kTypes), "[safetensors] ", name, ": ", tensor, " has the unknown type ",
           j["dtype"].dump());
  e.dtype = t->second;
  TG_CHECK(FormatError, e.begin <= e.end && e.end <= data_size, "[safetensors] ", name, ": ", tensor, " takes bytes ",
           e.begin, " to ", e.end, " of the ", data_size, " that follow the header");
  TG_CHECK(FormatError, j["shape"].size() <= 64, "[safetensors] ", name, ": ", tensor, " has ", j["shape"].size(),
           " axes");
  uint64_t bytes = static_cast<uint64_t>(e.dtype.itemsize());
  bool fits = true, empty = false;
  for (const Json& d : j["shape"]) {
    const uint64_t n = number(d, name, tensor);
    empty |= n == 0;
    fits &= n <= INT64_MAX;
    if (n > 0 && bytes > UINT64_MAX / n) fits = false;
    else if (n > 0) bytes *= n;
    e.shape.push_back(static_cast<int64_t>(n));
  }
  TG_CHECK(FormatError, fits && (empty ? 0 : bytes) == e.end - e.begin, "[safetensors] ", name, ": ", tensor,
           " of shape ", j["shape"].dump(), " and type ", type, " has ", e.end - e.begin, " bytes");
  return e;
}

}  // namespace

Safetensors parse_safetensors(std::span<const uint8_t> bytes, uint64_t file_size, std::string_view name) {
  TG_CHECK(FormatError, bytes.size() >= 8 && file_size >= 8, "[safetensors] ", name, ": got ", file_size,
           " bytes, expected at least 8");
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | bytes[static_cast<size_t>(i)];
  // Every such file has a JSON object after the length.
  const bool plausible =
      length <= kMaxSafetensorsHeader && bytes.size() > 8 && (bytes[8] == '{' || bytes[8] == '[' || bytes[8] == ' ');
  TG_CHECK(FormatError, plausible, "[safetensors] ", name,
           " is no safetensors file: it does not begin with the length of a header and the header");
  TG_CHECK(FormatError, length <= file_size - 8 && length <= bytes.size() - 8, "[safetensors] ", name,
           ": got a header of ", length, " bytes in a file of ", file_size, ": the file is cut off");
  const Json j = parse({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)}, name);
  TG_CHECK(FormatError, j.is_object(), "[safetensors] ", name, ": the header is no JSON object");
  Safetensors out{8 + length, {}, {}};
  for (const auto& [key, value] : j.items()) {
    if (key != "__metadata__") {
      out.entries.push_back(entry(key, value, file_size - out.data_start, name));
      continue;
    }
    TG_CHECK(FormatError, value.is_object(), "[safetensors] ", name, ": __metadata__ is no JSON object");
    for (const auto& [k, v] : value.items())
      out.metadata.emplace_back(k, v.is_string() ? v.get<std::string>() : v.dump());
  }
  std::vector<const SafetensorsEntry*> by_place;
  for (const SafetensorsEntry& e : out.entries)
    if (e.begin < e.end) by_place.push_back(&e);
  std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < by_place.size(); i++)
    TG_CHECK(FormatError, by_place[i - 1]->end <= by_place[i]->begin, "[safetensors] ", name, ": ",
             by_place[i - 1]->name, " and ", by_place[i]->name, " share bytes");
  return out;
}

std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::vector<std::pair<std::string, std::string>>& metadata) {
  Json j = Json::object();
  if (!metadata.empty()) {
    Json& m = j["__metadata__"] = Json::object();
    for (const auto& [key, value] : metadata) m[key] = value;
  }
  uint64_t at = 0;
  for (const SafetensorsEntry& e : entries) {
    const auto* t =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& k) { return k.second == e.dtype; });
    TG_CHECK(DTypeError, t != std::end(kTypes), "[safetensors] got ", e.name, " of ", e.dtype,
             ", a type the format has not");
    TG_CHECK(ValueError, e.name != "__metadata__" && !j.contains(e.name), "[safetensors] got the name ", e.name,
             " twice, or one that is reserved");
    uint64_t bytes = static_cast<uint64_t>(e.dtype.itemsize());
    for (int64_t d : e.shape) bytes *= static_cast<uint64_t>(d);
    j[e.name] = {{"dtype", t->first}, {"shape", e.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text;
  try {
    text = j.dump();
  } catch (const Json::exception& e) {
    throw ValueError(str("[safetensors] got a name or metadata that is no UTF-8: ", e.what()));
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; i++) out[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  return out + text;
}

}  // namespace tg::io
