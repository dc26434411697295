/// \file The header of safetensors files.
#include "tinygrad/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

using Json = nlohmann::ordered_json;

const std::pair<std::string_view, DType> kTypes[] = {{"BOOL", dtypes::bool_},
                                                     {"I8", dtypes::int8},
                                                     {"U8", dtypes::uint8},
                                                     {"I16", dtypes::int16},
                                                     {"U16", dtypes::uint16},
                                                     {"I32", dtypes::int32},
                                                     {"U32", dtypes::uint32},
                                                     {"I64", dtypes::int64},
                                                     {"U64", dtypes::uint64},
                                                     {"F8_E4M3", dtypes::fp8e4m3},
                                                     {"F8_E5M2", dtypes::fp8e5m2},
                                                     {"F16", dtypes::float16},
                                                     {"BF16", dtypes::bfloat16},
                                                     {"F32", dtypes::float32},
                                                     {"F64", dtypes::float64},
                                                     {"F8_E4M3FNUZ", dtypes::fp8e4m3fnuz},
                                                     {"F8_E5M2FNUZ", dtypes::fp8e5m2fnuz}};
// Types of the format that no DType stands for.
constexpr std::string_view kMissingTypes[] = {"C64", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0"};

/// Parses JSON, at most as many levels deep as a header has, and rejects a name that occurs twice in one object, more
/// names than kMaxSafetensorsEntries and lists longer than a shape, before they take memory.
class HeaderJson {
 public:
  static Json parse(std::string_view text, std::string_view name) {
    TG_CHECK(FormatError, text.size() <= kMaxSafetensorsHeader, "[safetensors] ", name, ": got ", text.size(),
             " bytes of JSON, expected at most ", kMaxSafetensorsHeader);
    HeaderJson checks(name);
    const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) { return checks(depth, event, parsed); };
    try {
      return Json::parse(text, check);
    } catch (const Json::exception& e) {
      throw FormatError(str("[safetensors] ", name, ": the header is no JSON: ", e.what()));
    }
  }

 private:
  struct Level {
    std::unordered_set<std::string> keys;
    size_t values = 0;
    bool is_list = false;
  };
  explicit HeaderJson(std::string_view name) : name_(name) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    TG_CHECK(FormatError, depth <= 4, "[safetensors] ", name_, ": the header is nested too deeply");
    if (event == Event::value || event == Event::object_start || event == Event::array_start) count_value();
    if (event == Event::object_start || event == Event::array_start)
      open_.push_back({{}, 0, event == Event::array_start});
    if (event == Event::object_end || event == Event::array_end) open_.pop_back();
    if (event == Event::key) {
      TG_CHECK(FormatError, open_.back().keys.insert(parsed.get<std::string>()).second, "[safetensors] ", name_, ": ",
               parsed.dump(), " stands twice");
      TG_CHECK(FormatError, ++keys_ <= 4 * kMaxSafetensorsEntries, "[safetensors] ", name_, ": got more than ",
               kMaxSafetensorsEntries, " entries");
    }
    return true;
  }
  void count_value() {
    if (open_.empty() || !open_.back().is_list) return;
    TG_CHECK(FormatError, ++open_.back().values <= kMaxSafetensorsAxes, "[safetensors] ", name_,
             ": got a list of more than ", kMaxSafetensorsAxes, " numbers");
  }

  std::string_view name_;
  std::vector<Level> open_;
  size_t keys_ = 0;
};

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
  const bool missing = std::find(std::begin(kMissingTypes), std::end(kMissingTypes), type) != std::end(kMissingTypes);
  TG_CHECK(FormatError, t != std::end(kTypes), "[safetensors] ", name, ": ", tensor, " has the ",
           missing ? "type " : "unknown type ", j["dtype"].dump(), missing ? ", which this library has not" : "");
  e.dtype = t->second;
  TG_CHECK(FormatError, e.begin <= e.end && e.end <= data_size, "[safetensors] ", name, ": ", tensor, " takes bytes ",
           e.begin, " to ", e.end, " of the ", data_size, " that follow the header");
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

/// Checks that every byte behind the header belongs to one tensor, as the format wants.
void check_coverage(const Safetensors& f, uint64_t data_size, std::string_view name) {
  std::vector<const SafetensorsEntry*> by_place;
  for (const SafetensorsEntry& e : f.entries)
    if (e.begin < e.end) by_place.push_back(&e);
  std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  uint64_t at = 0;
  for (size_t i = 0; i < by_place.size(); i++) {
    TG_CHECK(FormatError, at <= by_place[i]->begin, "[safetensors] ", name, ": ", by_place[i - 1]->name, " and ",
             by_place[i]->name, " share bytes");
    TG_CHECK(FormatError, at == by_place[i]->begin, "[safetensors] ", name, ": bytes ", at, " to ", by_place[i]->begin,
             " behind the header, before ", by_place[i]->name, ", belong to no tensor");
    at = by_place[i]->end;
  }
  TG_CHECK(FormatError, at == data_size, "[safetensors] ", name, ": bytes ", at, " to ", data_size,
           " behind the header belong to no tensor");
}

std::vector<std::pair<std::string, std::string>> texts(const Json& object) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [k, v] : object.items()) out.emplace_back(k, v.is_string() ? v.get<std::string>() : v.dump());
  return out;
}

/// Whether a name stays in the folder it is looked up in, on every system.
bool is_plain_name(std::string_view file) {
  return !file.empty() && file != "." && file != ".." &&
         file.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos;
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
  const Json j =
      HeaderJson::parse({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)}, name);
  TG_CHECK(FormatError, j.is_object(), "[safetensors] ", name, ": the header is no JSON object");
  Safetensors out{8 + length, {}, {}};
  for (const auto& [key, value] : j.items()) {
    if (key != "__metadata__") {
      out.entries.push_back(entry(key, value, file_size - out.data_start, name));
      continue;
    }
    TG_CHECK(FormatError, value.is_object(), "[safetensors] ", name, ": __metadata__ is no JSON object");
    out.metadata = texts(value);
  }
  TG_CHECK(FormatError, out.entries.size() <= kMaxSafetensorsEntries, "[safetensors] ", name, ": got ",
           out.entries.size(), " tensors, expected at most ", kMaxSafetensorsEntries);
  check_coverage(out, file_size - out.data_start, name);
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

SafetensorsIndex parse_safetensors_index(std::string_view text, std::string_view name) {
  const Json j = HeaderJson::parse(text, name);
  TG_CHECK(FormatError, j.is_object() && j.contains("weight_map") && j["weight_map"].is_object(), "[safetensors] ",
           name, ": got an index without weight_map, expected the files of tensors by name");
  SafetensorsIndex out;
  for (const auto& [tensor, file] : j["weight_map"].items()) {
    TG_CHECK(FormatError, file.is_string() && is_plain_name(file.get_ref<const std::string&>()), "[safetensors] ", name,
             ": got the file ", file.dump(), " of ", tensor, ", expected the name of a file in the index's folder");
    out.files.emplace_back(tensor, file.get<std::string>());
  }
  if (j.contains("metadata") && j["metadata"].is_object()) out.metadata = texts(j["metadata"]);
  return out;
}

std::string safetensors_index(const SafetensorsIndex& index) {
  Json metadata = Json::object(), files = Json::object();
  for (const auto& [key, value] : index.metadata) {
    const bool number = !value.empty() && value.size() < 19 && (value[0] != '0' || value.size() == 1) &&
                        value.find_first_not_of("0123456789") == std::string::npos;
    if (number) metadata[key] = std::stoull(value);
    else metadata[key] = value;
  }
  for (const auto& [tensor, file] : index.files) files[tensor] = file;
  try {
    return Json{{"metadata", std::move(metadata)}, {"weight_map", std::move(files)}}.dump(2) + "\n";
  } catch (const Json::exception& e) {
    throw ValueError(str("[safetensors] got a name or metadata that is no UTF-8: ", e.what()));
  }
}

}  // namespace tg::io
