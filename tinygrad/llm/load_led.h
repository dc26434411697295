/// \file Models of a WorldLeader.
#pragma once
#include <memory>

#include "tinygrad/llm/language_model.h"

namespace tg::llm {

/// Loads a model in all processes and returns the one that rank 0 calls. PeerError when another process cannot.
std::shared_ptr<LanguageModel> load_led(const io::GgufFile& file, const ModelOptions& o);

}  // namespace tg::llm
