#include "tinygrad/llm/tokenize/unicode_text.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {Utf8Step::kValid, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8Step::kInvalid, 1};
  const uint8_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte has a range of its own: no overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned char low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (uint8_t i = 1; i < size; i++) {
    if (i >= bytes.size()) return {Utf8Step::kCutOff, i};
    if (at(i) < low || at(i) > high) return {Utf8Step::kInvalid, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Utf8Step::kValid, size};
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(i));
    out += step.kind == Utf8Step::kValid ? bytes.substr(i, step.size) : kReplacementChar;
    i += step.size;
  }
  return out;
}

char32_t next_char(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[i + k])); };
  const size_t size = utf8_length(text[i]);
  char32_t c = byte(0);
  if (size == 2) c = (c & 0x1f) << 6 | (byte(1) & 0x3f);
  if (size == 3) c = (c & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  if (size == 4) c = (c & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  i += size;
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_letter(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }
bool is_mark(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}
bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}
bool is_other(char32_t c) { return category(c) >= UTF8PROC_CATEGORY_CC; }
bool is_word_char(char32_t c) {
  const auto k = category(c);
  return is_letter(c) || is_mark(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
         k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}
bool is_cjk(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string normalized(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::kNFC || form == NormalForm::kNFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNFKC || form == NormalForm::kNFKD) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* bytes = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &bytes, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, &std::free);
  TG_CHECK(ValueError, n >= 0, "[tokenizer] got text that has no normal form: ", utf8proc_errmsg(n));
  return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(n)};
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {  // the only character whose full lower case has two code points
    out += "i\xcc\x87";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

size_t grapheme_end(std::string_view text, size_t begin) {
  size_t i = begin;
  auto before = static_cast<utf8proc_int32_t>(next_char(text, i));
  utf8proc_int32_t state = 0;
  while (i < text.size()) {
    size_t behind = i;
    const auto c = static_cast<utf8proc_int32_t>(next_char(text, behind));
    if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
    before = c;
    i = behind;
  }
  return i;
}

}  // namespace tg::llm
