/// \file Elements of tensors that lie in files next to a model.
#include "tinygrad/onnx/external_data.h"

#include <algorithm>
#include <charconv>

#include "tinygrad/base/error.h"

namespace tg::onnx {
namespace {

uint64_t parse_number(std::string_view key, std::string_view text) {
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  TG_CHECK(FormatError, error == std::errc() && end == text.data() + text.size(), "external_data has ", key, " \"",
           text.substr(0, 32), "\", expected a number");
  return v;
}

/// Returns whether every part of a relative path goes down.
bool stays_inside(const std::filesystem::path& p) {
  return p.is_relative() && !p.empty() &&
         std::ranges::none_of(p, [](const std::filesystem::path& part) { return part == ".." || part.empty(); });
}

/// Returns whether `path` without its symbolic links lies below `folder` without its own.
bool lies_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) return true;  // there is no such file: reading it says so
  const std::filesystem::path base = std::filesystem::canonical(folder, error);
  return !error && std::mismatch(base.begin(), base.end(), real.begin(), real.end()).first == base.end();
}

}  // namespace

const io::MappedFile& ExternalData::file(std::string_view location) {
  const auto found = files_.find(location);
  if (found != files_.end()) return found->second;
  TG_CHECK(FormatError, !folder_.empty(), "external_data names file \"", location.substr(0, 80),
           "\", but the model is no file: load it by its path");
  const bool text = location.find('\0') == std::string_view::npos;
  TG_CHECK(FormatError, text && stays_inside(location) && lies_below(folder_ / location, folder_),
           "external_data names file \"", location.substr(0, 80), "\", expected one inside of the model's folder");
  try {
    return files_.emplace(std::string(location), io::map_file(folder_ / location, "onnx")).first->second;
  } catch (const FileError& e) { throw FormatError(str("external_data: ", e.what())); }
}

ExternalData::Part ExternalData::part(const std::vector<std::pair<std::string_view, std::string_view>>& entries) {
  std::string_view location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const auto& [key, value] : entries) {
    if (key == "location") location = value;
    else if (key == "offset") offset = parse_number(key, value);
    else if (key == "length") length = parse_number(key, value);
  }
  const size_t known = files_.size();
  const io::MappedFile& f = file(location);
  const uint64_t size = f.bytes.size();
  TG_CHECK(FormatError, offset <= size && length.value_or(0) <= size - offset, "external_data takes bytes ", offset,
           " to ", offset + length.value_or(0), " of the ", size, " in \"", location.substr(0, 80), "\"");
  const std::string_view all(reinterpret_cast<const char*>(f.bytes.data()), f.bytes.size());
  return {all.substr(offset, length.value_or(size - offset)), f.owner, files_.size() > known ? all.size() : 0};
}

}  // namespace tg::onnx
