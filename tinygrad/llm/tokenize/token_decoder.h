/// \file Decoders: steps that make text of the spellings of tokens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg::llm {

struct DecodeStep {
  enum Kind : uint8_t {
    kByteLevel,     ///< characters that spell bytes
    kReplace,       ///< `from` by `to`
    kByteFallback,  ///< <0x41> is a byte
    kFuse,          ///< what follows sees one text
    kStrip,         ///< up to `left` times `from` at the begin, `right` times at the end
    kMetaspace,     ///< `from` is a space, and nothing at the begin when `left` > 0
    kWordPiece,     ///< `from` joins a piece to the one before, else a space does; `cleanup`: of spaces too
    kSuffix,        ///< `from` ends a word
  } kind;
  std::string from = {}, to = {};
  size_t left = 0, right = 0;
  bool cleanup = false;
};

class TokenDecoder {
 public:
  std::vector<DecodeStep> steps;

  /// Returns the text of spellings. Bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::vector<std::string> tokens) const;
  /// Returns what one spelling adds to a text, as bytes that may be part of a character.
  std::string bytes(std::string_view token, bool first) const;
};

/// Returns the byte that a spelling <0x00> to <0xFF> stands for, or -1.
int byte_of_spelling(std::string_view token);

}  // namespace tg::llm
