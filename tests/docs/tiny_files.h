/// \file Files that blocks of the documentation read, small enough to write in every run.
#pragma once
#include <string>

namespace snippets {

/// Writes a language model of random weights with a tokenizer of bytes to a GGUF file.
void write_tiny_model(const std::string& path);

}  // namespace snippets
