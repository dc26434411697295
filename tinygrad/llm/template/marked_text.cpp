/// \file Strings of templates.
#include "tinygrad/llm/template/marked_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "tinygrad/llm/template/char_tables.h"

namespace tg::llm {

Text Text::of_template(std::string bytes) {
  Text t;
  t.bytes = std::move(bytes);
  if (!t.bytes.empty()) t.trusted.push_back({0, t.bytes.size()});
  return t;
}

bool Text::all_trusted() const {
  return bytes.empty() || (trusted.size() == 1 && trusted[0] == ByteRange{0, bytes.size()});
}

void Text::append(const Text& other) {
  const size_t at = bytes.size();
  bytes += other.bytes;
  for (const ByteRange& r : other.trusted) {
    if (!trusted.empty() && trusted.back().end == at + r.begin) trusted.back().end = at + r.end;
    else trusted.push_back({at + r.begin, at + r.end});
  }
}

void Text::append(std::string_view untrusted) { bytes += untrusted; }

void Text::append_trusted(std::string_view from_template) { append(of_template(std::string(from_template))); }

Text Text::slice(size_t begin, size_t end) const {
  Text t;
  t.markup = markup;
  if (begin >= end) return t;
  t.bytes = bytes.substr(begin, end - begin);
  for (const ByteRange& r : trusted) {
    const size_t b = std::max(r.begin, begin), e = std::min(r.end, end);
    if (b < e) t.trusted.push_back({b - begin, e - begin});
  }
  return t;
}

Text Text::derived(std::string made) const {
  Text t = all_trusted() ? of_template(std::move(made)) : Text{std::move(made), {}, false};
  t.markup = markup;
  return t;
}

uint32_t char_at(std::string_view s, size_t at, size_t& length) {
  utf8proc_int32_t c = 0;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(s.data()) + at,
                                  static_cast<utf8proc_ssize_t>(s.size() - at), &c);
  length = n > 0 ? static_cast<size_t>(n) : 1;
  return n > 0 ? static_cast<uint32_t>(c) : 0xFFFD;
}

void append_char(std::string& out, uint32_t c) {
  utf8proc_uint8_t b[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), b);
  out.append(reinterpret_cast<const char*>(b), static_cast<size_t>(std::max<utf8proc_ssize_t>(n, 0)));
}

size_t count_chars(std::string_view s) {
  size_t n = 0, length = 1;
  for (size_t at = 0; at < s.size(); at += length) {
    if (static_cast<unsigned char>(s[at]) < 0x80) length = 1;
    else char_at(s, at, length);
    n++;
  }
  return n;
}

size_t char_offset(std::string_view s, size_t number) {
  size_t at = 0, length = 1;
  for (; number > 0 && at < s.size(); number--, at += length) char_at(s, at, length);
  return std::min(at, s.size());
}

bool is_space_char(uint32_t c) {
  if ((c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0) return true;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

namespace {

int category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(uint32_t c) { return is_upper_char(c) || is_lower_char(c) || category(c) == UTF8PROC_CATEGORY_LT; }

uint32_t to_upper(uint32_t c) { return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
uint32_t to_lower(uint32_t c) { return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
uint32_t to_title(uint32_t c) { return static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

void append_upper(std::string& out, uint32_t c) {
  const std::u32string several = long_upper(c);
  for (const char32_t u : several) append_char(out, static_cast<uint32_t>(u));
  if (several.empty()) append_char(out, to_upper(c));
}

void append_lower(std::string& out, uint32_t c, bool after_letter, bool before_letter) {
  if (c == 0x130) out += "i\xCC\x87";
  else if (c == 0x3A3 && after_letter && !before_letter) out += "\xCF\x82";  // a sigma that ends a word
  else append_char(out, to_lower(c));
}

/// Appends the title case: of several upper case letters all but the first become small, and a iota behind them is
/// written below (Unicode, SpecialCasing).
void append_title(std::string& out, uint32_t c) {
  constexpr uint32_t kIota = 0x399, kIotaBelow = 0x345;
  const bool single = category(to_title(c)) == UTF8PROC_CATEGORY_LT;
  const std::u32string several = single ? std::u32string() : long_upper(c);
  if (several.empty()) append_char(out, to_title(c));
  bool first = true;
  for (const char32_t u : several) {
    const auto upper = static_cast<uint32_t>(u);
    append_char(out, first ? upper : upper == kIota ? kIotaBelow : to_lower(upper));
    first &= !is_cased(upper);
  }
}

/// Calls f(code point, bytes, whether a cased letter comes before, whether one comes after).
void for_each_char(std::string_view s, const std::function<void(uint32_t, std::string_view, bool, bool)>& f) {
  size_t length = 1, next_length = 1;
  bool before = false;
  for (size_t at = 0; at < s.size(); at += length) {
    const uint32_t c = char_at(s, at, length);
    const bool more = at + length < s.size();
    const bool after = more && is_cased(char_at(s, at + length, next_length));
    f(c, s.substr(at, length), before, after);
    before = is_cased(c);
  }
}

}  // namespace

bool is_alpha_char(uint32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
bool is_digit_char(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_printable_char(uint32_t c) {
  if (c == ' ') return true;
  const int k = category(c);
  return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}
bool is_numeric_char(uint32_t c) {
  const int k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO || is_letter_number(c);
}
bool is_upper_char(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_other_upper(c); }
bool is_lower_char(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_other_lower(c); }
bool is_title_char(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

std::string upper_text(std::string_view s) {
  std::string out;
  for_each_char(s, [&](uint32_t c, std::string_view b, bool, bool) {
    if (c == 0xFFFD) out += b;
    else append_upper(out, c);
  });
  return out;
}

std::string lower_text(std::string_view s) {
  std::string out;
  for_each_char(s, [&](uint32_t c, std::string_view b, bool before, bool after) {
    if (c == 0xFFFD) out += b;
    else append_lower(out, c, before, after);
  });
  return out;
}

std::string casefold_text(std::string_view s) {
  std::string out;
  for_each_char(s, [&](uint32_t c, std::string_view b, bool, bool) {
    utf8proc_int32_t folded[8];
    int last_class = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &last_class);
    if (c == 0xFFFD || n < 0 || n > 8) out += b;
    else
      for (utf8proc_ssize_t i = 0; i < n; i++) append_char(out, static_cast<uint32_t>(folded[i]));
  });
  return out;
}

std::string title_text(std::string_view s) {
  std::string out;
  for_each_char(s, [&](uint32_t c, std::string_view b, bool before, bool after) {
    if (c == 0xFFFD) out += b;
    else if (before) append_lower(out, c, before, after);
    else append_title(out, c);
  });
  return out;
}

std::string capitalize_text(std::string_view s) {
  std::string out;
  bool first = true;
  for_each_char(s, [&](uint32_t c, std::string_view b, bool before, bool after) {
    if (c == 0xFFFD) out += b;
    else if (first) append_title(out, c);
    else append_lower(out, c, before, after);
    first = false;
  });
  return out;
}

std::string python_real(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char b[40];
  const auto end = std::to_chars(b, b + sizeof b, v, std::chars_format::scientific).ptr;
  const std::string_view all(b, static_cast<size_t>(end - b));
  const size_t e = all.find('e');
  int exponent = 0;
  const std::string_view power = all.substr(e + 1 + (all[e + 1] == '+' ? 1 : 0));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(all);
  char fixed[400];
  const auto fixed_end = std::to_chars(fixed, fixed + sizeof fixed, v, std::chars_format::fixed).ptr;
  std::string out(fixed, static_cast<size_t>(fixed_end - fixed));
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string python_repr(std::string_view s) {
  const bool twice = s.find('\'') != std::string_view::npos && s.find('"') == std::string_view::npos;
  const char quote = twice ? '"' : '\'';
  std::string out(1, quote);
  size_t length = 1;
  const auto hex = [&](char kind, uint32_t c, int digits) {
    out += '\\';
    out += kind;
    for (int i = digits - 1; i >= 0; i--) out += "0123456789abcdef"[c >> (4 * i) & 15];
  };
  for (size_t at = 0; at < s.size(); at += length) {
    const uint32_t c = char_at(s, at, length);
    if (c == static_cast<uint32_t>(quote) || c == '\\') (out += '\\') += static_cast<char>(c);
    else if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (c == 0xFFFD || is_printable_char(c)) out += s.substr(at, length);
    else if (c < 0x100) hex('x', c, 2);
    else if (c < 0x10000) hex('u', c, 4);
    else hex('U', c, 8);
  }
  return out += quote;
}

}  // namespace tg::llm
