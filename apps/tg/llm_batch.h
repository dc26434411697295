/// \file The speed of several replies at once, as tg llm --benchmark --batch reports it.
#pragma once
#include <cstdint>
#include <filesystem>

#include "tinygrad/llm/language_model.h"
#include "tinygrad/llm/sampler.h"

namespace tg::app {

/// Returns how many tokens a second the engine generates for `sequences` requests together: drawing included, prompts
/// and the first tokens, which compile, not. Each reply has `tokens` tokens.
double batch_decode_rate(const std::filesystem::path& file, const llm::ModelOptions& options, int64_t sequences,
                         int64_t tokens, const llm::SamplingOptions& sampling);

}  // namespace tg::app
