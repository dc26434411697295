/// \file The models of tokenizers: what makes tokens of a word, a stretch of normalized text without special tokens.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/tokenize/token_table.h"

namespace tg::llm {

/// A part of a word on its way to a token; neighbours are linked.
struct WordSymbol {
  uint32_t begin, end;  ///< bytes of the word; end is 0 once the symbol went into the one before it
  int32_t id;           ///< -1: not in the vocabulary
  int32_t prev, next;   ///< -1: none
  bool frozen;          ///< a user-defined token, which is not merged
};
/// A merge that may happen: it is stale once one of the two symbols has other ends.
struct MergeCandidate {
  uint32_t rank, left, middle, end;
  int32_t id;
};
/// A node of the best path: the best way to split the text before it.
struct PathNode {
  double score;
  uint32_t begin;
  int32_t id;  ///< -1: no path ends here yet
};
/// Memory that the words of one text share.
struct ModelScratch {
  std::vector<WordSymbol> symbols;
  std::vector<MergeCandidate> heap;
  std::vector<PathNode> path;
  std::string text;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of a word: valid UTF-8, or any bytes when the vocabulary is byte-level.
  virtual void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;
};

/// The tokens of the 256 bytes, -1 where there is none.
struct ByteTokens {
  int32_t ids[256];
  ByteTokens() {
    for (int32_t& id : ids) id = -1;
  }
  /// Appends the tokens of all bytes; false, and nothing is appended, when one is missing.
  bool append(std::string_view bytes, std::vector<int32_t>& out) const;
};

/// Byte pair encoding by a list of merges: the merge with the smallest rank first, the leftmost of equals.
struct MergeBpe : TokenModel {
  TokenTable tokens;  ///< by bytes when byte_level, else by text
  MergeTable merges;
  ByteTokens bytes;          ///< byte_level: the first symbols; else what unknown characters become, when byte_fallback
  bool byte_level = false;   ///< symbols are bytes, not characters
  bool whole_words = false;  ///< a word that is a token is not split ("ignore_merges")
  bool byte_fallback = false, fuse_unk = false;
  bool split_before_mark = false;  ///< no token has a space mark behind something else: words end there
  int32_t unk = -1;
  std::string continuing_prefix, word_suffix;  ///< of the spelling of symbols behind the first, and of the last one

  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  void encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void split(std::string_view word, ModelScratch& scratch) const;
};

/// Byte pair encoding by the order of tokens: of all neighbours that together are a token the one with the smallest
/// rank is merged first, the leftmost of equals. SentencePiece ranks by score, tiktoken by the id.
struct RankBpe : TokenModel {
  TokenTable tokens;
  std::vector<uint32_t> ranks;  ///< of ids
  std::vector<bool> unused;     ///< ids that merge but are split again in the end; empty: none
  PrefixTrie user_defined;      ///< tokens that are found first and not merged
  ByteTokens bytes;
  bool byte_level = false, whole_words = false, byte_fallback = false, split_before_mark = false;
  int32_t unk = -1;

  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  void encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void split(std::string_view word, ModelScratch& scratch) const;
  void append(std::string_view symbol, int32_t id, bool& after_unk, std::vector<int32_t>& out) const;
  bool is_unused(int32_t id) const { return !unused.empty() && id >= 0 && unused[static_cast<size_t>(id)]; }
};

/// The unigram language model: the split of a text with the largest sum of scores (Viterbi).
struct Unigram : TokenModel {
  PrefixTrie trie;
  std::vector<double> scores;  ///< of ids
  ByteTokens bytes;
  bool byte_fallback = false;
  bool fuse_unk = true;
  bool single = false;     ///< sums are float, as in SentencePiece: ties fall out as there
  double unk_score = -10;  ///< of a character that is no token
  int32_t unk = -1;

  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;
};

/// Greedy longest match from the left (BERT): pieces behind the first one are spelled with a prefix ("##").
struct WordPiece : TokenModel {
  TokenTable begins, continues;  ///< without the prefix
  int32_t unk = -1;
  size_t max_chars = 100;  ///< longer words are unknown

  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;
};

/// A token for each word.
struct WordLevel : TokenModel {
  TokenTable tokens;
  int32_t unk = -1;
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;
};

}  // namespace tg::llm
