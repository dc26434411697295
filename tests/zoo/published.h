/// \file The names and shapes of published files of weights.
#pragma once
#include <string_view>

#include "tinygrad/nn/state.h"

namespace tg::zoo {

/// Returns tensors of floats with the names and shapes that expected/FILE.names lists; their values are undefined.
nn::StateDict published(std::string_view file);
/// Returns them with the weights of their names, as give_weights() has them.
nn::StateDict published_weights(std::string_view file);

}  // namespace tg::zoo
