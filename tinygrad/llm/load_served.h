/// \file Opens a model file with all that a server needs of it.
#pragma once
#include <filesystem>

#include "tinygrad/llm/language_model.h"
#include "tinygrad/llm/server.h"

namespace tg::llm {

/// Reads a GGUF file: weights, tokenizer and chat template. A GGUF file of the architecture bert and a Hugging Face
/// folder are encoders, which make embeddings. The name is that of the file or folder. Throws as LanguageModel::load,
/// Tokenizer::from_gguf, find_chat_template (which takes `chat_template`) and BertModel::open.
ServedModel load_served_model(const std::filesystem::path& file, const ModelOptions& options = {},
                              const std::string& chat_template = {});

}  // namespace tg::llm
