/// \file UTF-8 and the classes of code points that tokenizers ask for. Properties are those of utf8proc.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tg::llm {

/// The marker of a space in SentencePiece vocabularies (U+2581).
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";
inline constexpr std::string_view kReplacementChar = "\xef\xbf\xbd";  ///< U+FFFD

/// Returns the bytes of the UTF-8 character that begins with `lead`, in text known to be valid.
constexpr size_t utf8_length(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/// What stands at the begin of bytes of unknown origin: a valid character; the maximal part of one (the Unicode
/// Standard, section 3.9, "U+FFFD substitution of maximal subparts") that the end cuts off or something else follows.
struct Utf8Step {
  enum Kind : uint8_t { kValid, kInvalid, kCutOff } kind;
  uint8_t size;
};
/// Reads one step of non-empty bytes.
Utf8Step utf8_step(std::string_view bytes);
/// Returns the valid text for bytes: each maximal part of an invalid sequence becomes U+FFFD.
std::string utf8_lossy(std::string_view bytes);

/// Reads the code point at text[i] of valid UTF-8 and moves i behind it.
char32_t next_char(std::string_view text, size_t& i);
void append_utf8(std::string& out, char32_t c);

bool is_white_space(char32_t c);  ///< the property White_Space
bool is_letter(char32_t c);       ///< general category L
bool is_numeric(char32_t c);      ///< general category N
bool is_nonspacing_mark(char32_t c);
bool is_mark(char32_t c);         ///< general category M
bool is_punctuation(char32_t c);  ///< general category P, or ASCII punctuation
bool is_other(char32_t c);        ///< control, format, private use or surrogate
bool is_word_char(char32_t c);    ///< \w: alphabetic, marks, decimal digits, connectors
bool is_cjk(char32_t c);          ///< the ideographs that BERT takes as words

enum class NormalForm : uint8_t { kNFC, kNFD, kNFKC, kNFKD };
/// Returns valid UTF-8 in a normal form of Unicode.
std::string normalized(std::string_view text, NormalForm form);
/// Appends the lower case of a character (one code point, or the several of its full mapping).
void append_lower(std::string& out, char32_t c);
/// Returns the end of the grapheme cluster that begins at text[begin].
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace tg::llm
