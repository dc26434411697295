/// \file Checkpoints: all that a training run needs to go on as if it had not stopped, in one safetensors file or, by
/// several processes, in a folder of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/nn/optim.h"
#include "tinygrad/nn/state_file.h"

namespace tg::nn {

/// The state of a training run. In the file, weights are "model.NAME"; of optimizer I, "optimizer.I.lr" is the learning
/// rate and "optimizer.I.SLOT.NAME" the state ("m", "v", "b", ...) of a parameter, by its name in the model, so that
/// the order of parameters may change.
struct Checkpoint {
  StateDict model;  ///< get_state_dict(model): handles that are read when saving and written to when loading
  std::vector<Optimizer*> optimizers = {};
  int64_t step = 0;        ///< for the caller to count
  Metadata metadata = {};  ///< texts of the caller's
};

/// Writes weights, state of optimizers, random numbers' state and step. The old file is replaced when the new one is
/// complete and on the disk (see safe_save): a run that is killed while it saves has one or the other. ValueError for
/// an optimizer whose parameters are not in the model.
void save_checkpoint(const Checkpoint& c, const std::filesystem::path& path);
/// Writes a checkpoint into a folder, all processes of the world together, each a part (see safe_save_together): the
/// old one stays until the new one is complete. Step, metadata and random numbers' state are those of rank 0. A world
/// of another size, or one process, loads it. FileError, PeerError where another process failed, ValueError for an
/// optimizer whose parameters are not in the model.
void save_sharded_checkpoint(const Checkpoint& c, const std::filesystem::path& folder);
/// Gives model, optimizers and random numbers the state of a file or folder, and sets step and metadata; in a world all
/// processes do so. Nothing is changed when it throws: FormatError for what is no checkpoint or is damaged, FileError
/// for a part that is missing, ValueError that lists names which the file lacks, and those of the file which no process
/// has, ShapeError; PeerError where another process could not read it.
void load_checkpoint(Checkpoint& c, const std::filesystem::path& path);

/// Returns the state of the random number streams of all devices as text, and goes on where such a text was taken.
/// FormatError for another text.
std::string random_state();
void set_random_state(std::string_view state);

}  // namespace tg::nn
