/// \file CLIP's tokenizer: text in lower case, cut into words, merged from bytes; begin and end around it.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tinygrad/llm/tokenizer.h"

namespace tg::models {

/// Turns texts into rows of tokens.
class ClipTokenizer {
 public:
  /// Reads the list of merges, "left right" in each line, the first to be merged first: the published
  /// bpe_simple_vocab_16e6.txt, unpacked, whose first line is a comment; of its lines the first 48894 count. Tokens are
  /// the 256 bytes, these at the end of a word, the merges, and begin and end. FormatError for merges of unknown parts.
  explicit ClipTokenizer(std::string_view merges);
  /// Returns `length` tokens: begin, those of the text as far as there is room, end, and then the end again or, as
  /// OpenCLIP wants it, zeros. ValueError for a length below 2.
  std::vector<int32_t> encode(std::string_view text, bool pad_with_zeros = false, int64_t length = 77) const;
  const llm::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  llm::Tokenizer tokenizer_;
};

}  // namespace tg::models
