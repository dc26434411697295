/// \file Files of parameters.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/nn/byte_source.h"
#include "tinygrad/nn/state.h"

namespace tg::nn {

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Writes a safetensors file. The old one is replaced when the new one is complete and on the disk: a program that is
/// killed, or a machine that stops, leaves one or the other. DTypeError for weak types and those the format lacks,
/// ValueError for an undefined tensor.
void safe_save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata = {});
/// Returns the tensors of a safetensors file, of a model in several files (its index, "model.safetensors.index.json",
/// of which only tensors it names are loaded, each from the file it names), or of a folder with either. On the CPU they
/// are the files' pages, read when they are used; `device` copies them. FormatError for a corrupt file or index and for
/// files outside of the index's folder, FileError for one that cannot be read.
StateDict safe_load(const std::filesystem::path& path, const std::string& device = "CPU");
/// Returns the tensors of a safetensors file in memory. FormatError for a corrupt one.
StateDict safe_load(const ByteSource& source);

struct ShardOptions {
  uint64_t max_bytes = 5'000'000'000;  ///< of the tensors in one file; a larger tensor has a file of its own
  std::string name = "model";
  Metadata metadata = {};
};
/// Writes a model into a folder as NAME-00001-of-0000N.safetensors and, last, NAME.safetensors.index.json; as
/// NAME.safetensors alone when one file is enough. Each file is replaced as a whole.
/// DTypeError and ValueError as safe_save.
void safe_save_sharded(const StateDict& tensors, const std::filesystem::path& folder, const ShardOptions& o = {});
/// The text in an index and in its files that says which save they are of; safe_load throws FormatError where an index
/// has one and a file has another.
inline constexpr const char* kSaveKey = "save";
/// Returns the texts a file, an index or the model in a folder was saved with.
Metadata safe_metadata(const std::filesystem::path& path);

}  // namespace tg::nn
