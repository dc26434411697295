/// \file Weights of CTranslate2 (github.com/OpenNMT/CTranslate2), as packages with Whisper have them: model.bin.
/// Nothing in a file is trusted.
#pragma once
#include <string_view>

#include "tinygrad/base/host_bytes.h"
#include "tinygrad/nn/state.h"

namespace tg::app {

/// Returns the float tensors of a file by name: "encoder/layer_0/ffn/linear_0/weight". FormatError that begins with
/// `what`: for damaged files and quantized weights.
nn::StateDict read_ctranslate2(const HostBytes& file, std::string_view what);

/// Returns the weights of a Whisper under the names of models/whisper.h.
nn::StateDict whisper_of_ctranslate2(const nn::StateDict& file);

}  // namespace tg::app
