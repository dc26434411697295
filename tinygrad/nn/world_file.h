/// \file Files of parameters that all processes of a world write together.
#pragma once
#include <filesystem>

#include "tinygrad/nn/state_file.h"

namespace tg::nn {

/// Writes tensors into a folder, each process a part: NAME-SAVE-00001-of-0000N.safetensors, SAVE being a number of this
/// save, and, when all parts are on the disk, the index NAME.safetensors.index.json, which is the moment from which
/// safe_load returns the new tensors. Every tensor is in one part, whole, so that any number of processes and other
/// readers of the format read them; those divided over processes are gathered, a few at a time. Parts of earlier saves
/// are removed at the end: a save that is interrupted leaves the old tensors as they were. All processes of the world
/// call this in one folder that all see. A process may have tensors that others do not, as stages of a pipeline do: the
/// file has those of all. What several have under one name is the same there, and written by one of them; a tensor
/// that is divided is in all. When a process fails, it throws its error and all others a PeerError, and the world goes
/// on. DTypeError and ValueError as safe_save, ValueError for one name of different tensors, FileError.
void safe_save_together(const StateDict& tensors, const std::filesystem::path& folder, const Metadata& metadata = {},
                        const std::string& name = "model");

}  // namespace tg::nn
