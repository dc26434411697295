/// \file Numbers in text, as Python's int() and float() read them.
#include <charconv>
#include <cmath>
#include <limits>

#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

/// Returns the base a prefix like "0x" names; 0 for none.
int64_t prefix_base(std::string_view s) {
  if (s.size() < 2 || s[0] != '0') return 0;
  const char c = static_cast<char>(s[1] | 0x20);
  return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

/// Removes the underscores between digits; false where one stands elsewhere.
bool join_digits(std::string& s) {
  std::string out;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0; i < s.size(); i++) {
    if (s[i] != '_') out += s[i];
    else if (i == 0 || i + 1 == s.size() || !is_digit(s[i - 1]) || !is_digit(s[i + 1])) return false;
  }
  s = std::move(out);
  return true;
}

}  // namespace

std::optional<Value> read_integer(Interpreter& in, const Text& text, int64_t base) {
  const Text stripped = strip_text(text, nullptr, true, true);
  std::string_view s = stripped.bytes;
  if (base != 0 && (base < 2 || base > 36)) return {};
  bool negative = false;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  const int64_t named = prefix_base(s);
  bool prefixed = false;
  if (named && (base == 0 || base == named)) {
    base = named;
    prefixed = true;
    s.remove_prefix(2);
  }
  const bool decimal = base == 0;
  if (decimal) base = 10;
  bool after_digit = prefixed, any = false, zeros = true, too_long = false;
  int64_t v = 0;
  for (const char c : s) {
    if (c == '_') {
      if (!after_digit) return {};
      after_digit = false;
      continue;
    }
    const int digit = digit_value(c);
    if (digit >= base) return {};
    if (decimal && any && zeros) return {};  // 010
    zeros &= digit == 0;
    any = after_digit = true;
    too_long |= __builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, int64_t{digit}, &v);
  }
  if (decimal && zeros && any) return Value(0);
  if (!any || !after_digit) return {};
  if (too_long || (!negative && v == INT64_MIN)) in.fail("an integer has more than 64 bits");
  return Value(negative ? v : -v);
}

std::optional<double> read_real(const Text& text) {
  std::string s = strip_text(text, nullptr, true, true).bytes;
  if (!join_digits(s)) return {};
  bool negative = false;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    negative = s[0] == '-';
    s.erase(0, 1);
  }
  std::string word = lower_text(s);
  double v = 0;
  if (word == "inf" || word == "infinity") v = std::numeric_limits<double>::infinity();
  else if (word == "nan") v = std::numeric_limits<double>::quiet_NaN();
  else {
    if (word.find_first_not_of("0123456789.e+-") != std::string::npos || word.starts_with("-")) return {};
    const auto r = std::from_chars(word.data(), word.data() + word.size(), v);
    if (r.ptr != word.data() + word.size() || word.empty()) return {};
    if (r.ec == std::errc::result_out_of_range) {
      const bool small = word.find("e-") != std::string::npos || word.starts_with("0.") || word.starts_with(".");
      v = small ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (r.ec != std::errc()) return {};
  }
  return negative ? -v : v;
}

}  // namespace tg::llm::jinja
