/// \file What a tokenizer is made of; shared by its readers.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/tokenize/text_normalizer.h"
#include "tinygrad/llm/tokenize/text_split.h"
#include "tinygrad/llm/tokenize/token_decoder.h"
#include "tinygrad/llm/tokenize/token_model.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::llm {

/// Limits of what is read.
inline constexpr size_t kMaxVocabulary = size_t(1) << 24;       ///< tokens, merges
inline constexpr size_t kMaxVocabularyBytes = size_t(1) << 30;  ///< of all texts together
inline constexpr size_t kMaxAddedTokenBytes = 4096;             ///< of a token that is looked for in texts

/// A token that is found in texts before they are split.
struct AddedToken {
  int32_t id;
  std::string text;
  bool special = false;                 ///< only found where special tokens are parsed
  bool single_word = false;             ///< only between characters that are not of words
  bool lstrip = false, rstrip = false;  ///< takes the white space before it, behind it
  bool normalized = false;              ///< found in the normalized text
};

/// A stretch of text without added tokens, or such a token.
struct AddedSpan {
  size_t begin, end;
  int32_t id;  ///< -1: text
};

class AddedTokens {
 public:
  /// Adds a token; `search_text`: what is looked for. Tokens that stand twice keep the first id.
  void add(AddedToken token, std::string_view search_text, std::string_view name);
  bool empty() const { return tokens_.empty(); }
  /// Splits a text at the tokens that are looked for before (after) it is normalized: the leftmost, longest match.
  std::vector<AddedSpan> find(std::string_view text, bool normalized, bool parse_special) const;

 private:
  PrefixTrie raw_, normalized_;
  std::vector<AddedToken> tokens_;
};

/// Words and their tokens. Direct mapped: a word takes the place of the one that was there.
class WordCache {
 public:
  static constexpr size_t kSlots = 1 << 14, kMaxWord = 39, kMaxTokens = 10;
  /// Appends the tokens of a word that is there; `slot`: where it belongs.
  bool find(std::string_view word, std::vector<int32_t>& out, size_t& slot);
  void put(std::string_view word, const int32_t* tokens, size_t count, size_t slot);

 private:
  struct Slot {
    uint8_t size = 0xff, count = 0;
    char word[kMaxWord];
    int32_t tokens[kMaxTokens];
  };
  std::vector<Slot> slots_;  ///< made when the first word comes
};

struct Tokenizer::Parts {
  std::vector<std::string> texts;          ///< of ids, as the vocabulary spells them
  std::vector<bool> special;               ///< of ids
  std::map<int32_t, std::string> decoded;  ///< what ids become in texts, where that is not what the vocabulary spells
  TokenTable ids;                          ///< by those texts
  AddedTokens added;
  std::vector<NormalizerPtr> normalizers;
  std::vector<std::unique_ptr<SplitStep>> splits;
  bool spelled_words = false;  ///< words are spelled byte by byte: the model takes the bytes
  std::unique_ptr<TokenModel> model;
  TokenDecoder decoder;
  std::vector<int32_t> before, behind;  ///< what goes around a text
  std::optional<int32_t> bos, eos, eot, unk, pad;
  std::vector<int32_t> end_tokens, special_tokens;

  mutable std::mutex cache_lock;
  mutable WordCache cache;

  /// Fills what follows from texts and special: ids (unless it is filled), special_tokens, end_tokens (those of `ends`
  /// and the special tokens that published models end turns with).
  void finish(std::vector<int32_t> ends);
  std::string normalize(std::string_view text) const;
  /// Returns the text from which an id is decoded.
  std::string_view decoded_text(int32_t id) const;
};

}  // namespace tg::llm
