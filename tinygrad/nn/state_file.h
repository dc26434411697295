/// \file Files of parameters.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/nn/state.h"

namespace tg::nn {

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Writes a safetensors file; the old one is replaced when the new one is complete. DTypeError for weak types and those
/// the format lacks.
void safe_save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata = {});
/// Returns the tensors of a safetensors file. On the CPU they are the file's pages, read when they are used; `device`
/// copies them. FormatError for a corrupt file, FileError for one that cannot be read.
StateDict safe_load(const std::filesystem::path& path, const std::string& device = "CPU");
Metadata safe_metadata(const std::filesystem::path& path);

}  // namespace tg::nn
