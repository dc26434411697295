/// \file Gated delta net: linear attention whose heads keep a matrix that decays and learns by the delta rule, behind a
/// short convolution over time.
///
/// Source: Gated Delta Networks (arXiv 2412.06464), with the tensors of the qwen3next and qwen35 architectures.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/llm/attention.h"

namespace tg::llm {

/// Returns the bytes of the states of all sequences.
int64_t delta_net_bytes(const RecurrentConfig& config, int64_t sequences);

std::unique_ptr<Mixer> make_delta_net(const Weights& w, const std::string& prefix, int64_t sequences);

}  // namespace tg::llm
