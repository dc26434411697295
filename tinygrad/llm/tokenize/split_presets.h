/// \file How the byte-level BPE of published models splits text, by the name that GGUF files give in
/// `tokenizer.ggml.pre`.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "tinygrad/llm/tokenize/text_split.h"

namespace tg::llm {

struct SplitPreset {
  std::vector<std::unique_ptr<SplitStep>> steps;
  bool spelled = false;      ///< the last steps split words that are spelled as byte-level vocabularies do
  bool whole_words = false;  ///< a word that is a token is not split by merges
  bool add_bos = false, add_eos = false, add_sep = false;  ///< unless the file says otherwise
};

/// Returns how a preset splits. FormatError naming `name` for one that is unknown.
SplitPreset split_preset(std::string_view preset, std::string_view name);
/// Returns the names of all presets.
std::vector<std::string_view> split_preset_names();

}  // namespace tg::llm
