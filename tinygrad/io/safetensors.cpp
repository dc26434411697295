/// \file The header of safetensors files.
#include "tinygrad/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

/// Objects of what is read are trees: those of ordered_json are searched from one end, which for a million names takes
/// hours. HeaderJson notes the order of names. What is written is appended, which searches nothing.
using Json = nlohmann::json;
using WrittenJson = nlohmann::ordered_json;

void append(WrittenJson& object, const std::string& key, WrittenJson value) {
  object.get_ref<WrittenJson::object_t&>().push_back({key, std::move(value)});
}

const std::string kMetadata = "__metadata__", kWeightMap = "weight_map", kIndexMetadata = "metadata";

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

/// A header, with the names of its object, and of the objects in it, in the order of the file.
struct Header {
  Json json;
  std::vector<std::string> names;
  std::unordered_map<std::string, std::vector<std::string>> inner;
  /// Returns the names of one of the objects in it.
  const std::vector<std::string>& names_of(const std::string& object) const {
    static const std::vector<std::string> none;
    const auto found = inner.find(object);
    return found == inner.end() ? none : found->second;
  }
};

/// Parses JSON, at most as many levels deep as a header has, and rejects a name that occurs twice in one object, more
/// names than kMaxSafetensorsEntries and lists longer than a shape, before they take memory: a first pass looks at it
/// without storing values. (The parser's own filter looks at all members of an object after each.)
class HeaderJson : public nlohmann::json_sax<Json> {
 public:
  static Header parse(std::string_view text, std::string_view name) {
    TG_CHECK(FormatError, text.size() <= kMaxSafetensorsHeader, "[safetensors] ", name, ": got ", text.size(),
             " bytes of JSON, expected at most ", kMaxSafetensorsHeader);
    HeaderJson checks(name);
    Json::sax_parse(text, &checks);
    checks.header_.json = Json::parse(text);
    return std::move(checks.header_);
  }

  bool null() override { return count_value(); }
  bool boolean(bool) override { return count_value(); }
  bool number_integer(int64_t) override { return count_value(); }
  bool number_unsigned(uint64_t) override { return count_value(); }
  bool number_float(double, const std::string&) override { return count_value(); }
  bool string(std::string&) override { return count_value(); }
  bool binary(Json::binary_t&) override { return count_value(); }
  bool start_object(size_t) override { return open(/*is_list=*/false); }
  bool start_array(size_t) override { return open(/*is_list=*/true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    TG_CHECK(FormatError, open_.back().keys.insert(key).second, "[safetensors] ", name_, ": ", Json(key).dump(),
             " stands twice");
    TG_CHECK(FormatError, ++keys_ <= 4 * kMaxSafetensorsEntries, "[safetensors] ", name_, ": got more than ",
             kMaxSafetensorsEntries, " entries");
    note_order(key);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw FormatError(str("[safetensors] ", name_, ": the header is no JSON: ", e.what()));
  }

 private:
  struct Level {
    std::unordered_set<std::string> keys;
    size_t values = 0;
    bool is_list = false;
  };
  static constexpr size_t kMaxDepth = 4;
  explicit HeaderJson(std::string_view name) : name_(name) {}

  bool open(bool is_list) {
    count_value();
    open_.push_back({{}, 0, is_list});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool count_value() {
    TG_CHECK(FormatError, open_.size() <= kMaxDepth, "[safetensors] ", name_, ": the header is nested too deeply");
    if (open_.empty() || !open_.back().is_list) return true;
    TG_CHECK(FormatError, ++open_.back().values <= kMaxSafetensorsAxes, "[safetensors] ", name_,
             ": got a list of more than ", kMaxSafetensorsAxes, " numbers");
    return true;
  }
  /// Notes a name of the header's object, or of one of the few objects in it whose order counts.
  void note_order(const std::string& key) {
    if (open_.size() == 1) header_.names.push_back(key);
    else if (open_.size() == 2 && !header_.names.empty() &&
             (header_.names.back() == kMetadata || header_.names.back() == kWeightMap ||
              header_.names.back() == kIndexMetadata))
      header_.inner[header_.names.back()].push_back(key);
  }

  std::string_view name_;
  std::vector<Level> open_;
  size_t keys_ = 0;
  Header header_;
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

std::vector<std::pair<std::string, std::string>> texts(const Header& h, const std::string& object) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& k : h.names_of(object)) {
    const Json& v = h.json.at(object).at(k);
    out.emplace_back(k, v.is_string() ? v.get<std::string>() : v.dump());
  }
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
  const Header h =
      HeaderJson::parse({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)}, name);
  TG_CHECK(FormatError, h.json.is_object(), "[safetensors] ", name, ": the header is no JSON object");
  Safetensors out{8 + length, {}, {}};
  for (const std::string& key : h.names) {
    const Json& value = h.json.at(key);
    if (key != kMetadata) {
      out.entries.push_back(entry(key, value, file_size - out.data_start, name));
      continue;
    }
    TG_CHECK(FormatError, value.is_object(), "[safetensors] ", name, ": __metadata__ is no JSON object");
    out.metadata = texts(h, kMetadata);
  }
  TG_CHECK(FormatError, out.entries.size() <= kMaxSafetensorsEntries, "[safetensors] ", name, ": got ",
           out.entries.size(), " tensors, expected at most ", kMaxSafetensorsEntries);
  check_coverage(out, file_size - out.data_start, name);
  return out;
}

std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::vector<std::pair<std::string, std::string>>& metadata) {
  WrittenJson j = WrittenJson::object();
  if (!metadata.empty()) {
    WrittenJson& m = j[kMetadata] = WrittenJson::object();
    for (const auto& [key, value] : metadata) m[key] = value;
  }
  std::unordered_set<std::string_view> names;
  uint64_t at = 0;
  for (const SafetensorsEntry& e : entries) {
    const auto* t =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& k) { return k.second == e.dtype; });
    TG_CHECK(DTypeError, t != std::end(kTypes), "[safetensors] got ", e.name, " of ", e.dtype,
             ", a type the format has not");
    TG_CHECK(ValueError, e.name != kMetadata && names.insert(e.name).second, "[safetensors] got the name ", e.name,
             " twice, or one that is reserved");
    uint64_t bytes = static_cast<uint64_t>(e.dtype.itemsize());
    for (int64_t d : e.shape) bytes *= static_cast<uint64_t>(d);
    append(j, e.name, {{"dtype", t->first}, {"shape", e.shape}, {"data_offsets", {at, at + bytes}}});
    at += bytes;
  }
  std::string text;
  try {
    text = j.dump();
  } catch (const WrittenJson::exception& e) {
    throw ValueError(str("[safetensors] got a name or metadata that is no UTF-8: ", e.what()));
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; i++) out[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  return out + text;
}

SafetensorsIndex parse_safetensors_index(std::string_view text, std::string_view name) {
  const Header h = HeaderJson::parse(text, name);
  const Json& j = h.json;
  TG_CHECK(FormatError, j.is_object() && j.contains(kWeightMap) && j[kWeightMap].is_object(), "[safetensors] ", name,
           ": got an index without weight_map, expected the files of tensors by name");
  SafetensorsIndex out;
  for (const std::string& tensor : h.names_of(kWeightMap)) {
    const Json& file = j[kWeightMap].at(tensor);
    TG_CHECK(FormatError, file.is_string() && is_plain_name(file.get_ref<const std::string&>()), "[safetensors] ", name,
             ": got the file ", file.dump(), " of ", tensor, ", expected the name of a file in the index's folder");
    out.files.emplace_back(tensor, file.get<std::string>());
  }
  if (j.contains(kIndexMetadata) && j[kIndexMetadata].is_object()) out.metadata = texts(h, kIndexMetadata);
  return out;
}

std::string safetensors_index(const SafetensorsIndex& index) {
  WrittenJson metadata = WrittenJson::object(), files = WrittenJson::object();
  for (const auto& [key, value] : index.metadata) {
    const bool number = !value.empty() && value.size() < 19 && (value[0] != '0' || value.size() == 1) &&
                        value.find_first_not_of("0123456789") == std::string::npos;
    if (number) metadata[key] = std::stoull(value);
    else metadata[key] = value;
  }
  for (const auto& [tensor, file] : index.files) append(files, tensor, file);
  try {
    return WrittenJson{{kIndexMetadata, std::move(metadata)}, {kWeightMap, std::move(files)}}.dump(2) + "\n";
  } catch (const WrittenJson::exception& e) {
    throw ValueError(str("[safetensors] got a name or metadata that is no UTF-8: ", e.what()));
  }
}

}  // namespace tg::io
