/// \file Normalizers: steps that rewrite a text before it is split.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/tokenize/split_pattern.h"
#include "tinygrad/llm/tokenize/token_table.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual std::string apply(std::string_view text) const = 0;
};
using NormalizerPtr = std::unique_ptr<NormalizerStep>;

/// A compiled charsmap of SentencePiece: a double array trie (darts-clone) of texts and what they are replaced by.
class CharsMap {
 public:
  CharsMap() = default;
  /// Reads the bytes: the size of the trie (4 bytes, little endian), the trie, texts that end with a zero byte.
  /// FormatError naming `name`.
  CharsMap(std::span<const uint8_t> bytes, std::string_view name);
  bool empty() const { return units_.empty(); }
  /// Finds the shortest or longest text of the map that `at` begins with: its bytes, 0 when there is none, and what
  /// replaces it.
  size_t find(std::string_view at, bool longest, std::string_view& replacement) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

/// What BERT does: `clean` drops control characters and makes each white space a space, `cjk` puts spaces around
/// ideographs, `accents` drops nonspacing marks after decomposition.
struct BertNormalizerOptions {
  bool clean = true, cjk = true, accents = true, lower = true;
};
NormalizerPtr bert_normalizer(BertNormalizerOptions options);
NormalizerPtr unicode_normalizer(NormalForm form);
NormalizerPtr lowercase_normalizer();
NormalizerPtr strip_normalizer(bool left, bool right);  ///< drops white space at the ends
NormalizerPtr strip_accents_normalizer();               ///< drops marks
NormalizerPtr prepend_normalizer(std::string prefix);   ///< of texts that are not empty
NormalizerPtr replace_normalizer(SplitPattern pattern, std::string content);
NormalizerPtr nmt_normalizer();
/// Replaces grapheme clusters and characters, as Hugging Face's `Precompiled` does.
NormalizerPtr precompiled_normalizer(CharsMap map);

/// What SentencePiece does before it splits: charsmap, spaces, the mark for a space.
struct SentencePieceOptions {
  bool add_dummy_prefix = true, remove_extra_whitespaces = false;
};
NormalizerPtr sentencepiece_normalizer(CharsMap map, PrefixTrie user_defined, SentencePieceOptions options);

}  // namespace tg::llm
