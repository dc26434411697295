/// \file Templates as tokens.
#include "tinygrad/llm/template/template_lexer.h"

#include <algorithm>
#include <charconv>

#include "tinygrad/llm/chat_template.h"
#include "tinygrad/llm/template/marked_text.h"

namespace tg::llm::jinja {
namespace {

using Type = TemplateToken::Type;

bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/// Returns the source with \n as the only line break, and without one at its end.
std::string normal_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); i++) {
    if (source[i] != '\r') out += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n') out += '\n';
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : s_(normal_lines(source)), name_(name) {}

  std::vector<TemplateToken> run() {
    while (at_ < s_.size()) data();
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw TemplateError(TemplateError::Reason::syntax, line_, str("[chat_template] ", name_, ":", line_, ": ", what));
  }
  void add(Type type, std::string text, Value value = {}) {
    tokens_.push_back({type, line_, std::move(text), std::move(value)});
  }
  bool have(std::string_view text, size_t at) const { return std::string_view(s_).substr(at).starts_with(text); }
  /// Moves to `to` and counts lines.
  void go(size_t to) {
    line_ += static_cast<int>(
        std::count(s_.begin() + static_cast<std::ptrdiff_t>(at_), s_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  size_t after_space(size_t at) const {
    size_t length = 1;
    while (at < s_.size() && is_space_char(char_at(s_, at, length))) at += length;
    return at;
  }
  static std::string_view without_end_space(std::string_view text) {
    size_t end = 0, length = 1;
    for (size_t at = 0; at < text.size(); at += length)
      if (!is_space_char(char_at(text, at, length))) end = at + length;
    return text.substr(0, end);
  }

  /// Reads text up to the next tag, and the tag.
  void data() {
    size_t tag = at_;
    for (;; tag++) {
      tag = s_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= s_.size()) {
        add_data(std::string_view(s_).substr(at_));
        return go(s_.size());
      }
      if (s_[tag + 1] == '{' || s_[tag + 1] == '%' || s_[tag + 1] == '#') break;
    }
    const char kind = s_[tag + 1];
    const char sign = tag + 2 < s_.size() ? s_[tag + 2] : ' ';
    const bool signed_tag = sign == '-' || sign == '+';
    std::string_view text = std::string_view(s_).substr(at_, tag - at_);
    add_data(stripped(text, sign, kind != '{'));
    go(tag);
    const size_t inside = tag + 2 + (signed_tag ? 1 : 0);
    if (kind == '#') return comment(inside);
    if (kind == '%') {
      const size_t word = after_space(inside);
      if (have("raw", word) && raw(after_space(word + 3))) return;
    }
    add(kind == '%' ? Type::block_begin : Type::output_begin, "");
    go(inside);
    tag_tokens(kind == '%');
  }

  std::string_view stripped(std::string_view text, char sign, bool block) const {
    if (sign == '-') return without_end_space(text);
    if (sign == '+' || !block) return text;
    const size_t line = text.rfind('\n') + 1;
    if (line == 0 && !line_starting_) return text;
    return without_end_space(text.substr(line)).empty() ? text.substr(0, line) : text;
  }
  void add_data(std::string_view text) {
    if (!text.empty()) add(Type::data, std::string(text));
  }

  /// Returns where a tag that ends at `at` with %} or #} really ends, with the sign before and the space it takes; 0
  /// where it does not end here.
  size_t end_of_tag(size_t at, char kind) const {
    const char close[] = {kind, '}', 0};
    if (have("-" + std::string(close), at)) return after_space(at + 3);
    if (kind != '}' && have("+" + std::string(close), at)) return at + 3;
    if (!have(close, at)) return 0;
    const bool trim = kind != '}' && at + 2 < s_.size() && s_[at + 2] == '\n';
    return at + 2 + (trim ? 1 : 0);
  }
  void leave(size_t end) {
    line_starting_ = end > 0 && s_[end - 1] == '\n';
    go(end);
  }
  void comment(size_t inside) {
    for (size_t at = inside; at < s_.size(); at++)
      if (const size_t end = end_of_tag(at, '#')) return leave(end);
    fail("a comment does not end");
  }
  /// Reads a raw block whose tag ends at `at`; false where it does not end there.
  bool raw(size_t at) {
    size_t begin = 0;
    if (have("-%}", at)) begin = after_space(at + 3);
    else if (have("%}", at)) begin = at + 2;
    else return false;
    go(begin);
    line_starting_ = s_[begin - 1] == '\n';
    for (size_t tag = s_.find("{%", begin); tag != std::string::npos; tag = s_.find("{%", tag + 1)) {
      const char sign = tag + 2 < s_.size() ? s_[tag + 2] : ' ';
      const size_t word = after_space(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (!have("endraw", word)) continue;
      const size_t end = end_of_tag(after_space(word + 6), '%');
      if (!end) continue;
      add_data(stripped(std::string_view(s_).substr(begin, tag - begin), sign, true));
      leave(end);
      return true;
    }
    fail("a raw block does not end");
  }

  void tag_tokens(bool block) {
    std::string open;
    while (true) {
      const size_t space = after_space(at_);
      go(space);
      if (at_ >= s_.size()) fail("a tag does not end");
      if (open.empty()) {
        if (const size_t end = end_of_tag(at_, block ? '%' : '}')) {
          add(block ? Type::block_end : Type::output_end, "");
          return leave(end);
        }
      }
      const char c = s_[at_];
      if (starts_name(c)) name();
      else if (is_digit(c)) number();
      else if (c == '"' || c == '\'') string(c);
      else op(open);
    }
  }
  void name() {
    size_t end = at_;
    while (end < s_.size() && (starts_name(s_[end]) || is_digit(s_[end]))) end++;
    add(Type::name, s_.substr(at_, end - at_));
    go(end);
  }
  size_t digits(size_t at) const {
    while (at < s_.size() && (is_digit(s_[at]) || (s_[at] == '_' && at + 1 < s_.size() && is_digit(s_[at + 1])))) at++;
    return at;
  }
  /// Reads 0x1F, 0o17 or 0b11; false where no such number stands here.
  bool based_number() {
    const char kind = at_ + 1 < s_.size() ? static_cast<char>(s_[at_ + 1] | 0x20) : ' ';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (s_[at_] != '0' || !base) return false;
    const auto fits = [&](size_t at) {
      const int digit = at < s_.size() ? hex_digit(s_[at]) : 99;
      return digit < base;
    };
    size_t end = at_ + 2;
    std::string text;
    while (fits(end) || (end < s_.size() && s_[end] == '_' && fits(end + 1))) {
      if (s_[end] != '_') text += s_[end];
      end++;
    }
    if (text.empty()) return false;
    int64_t v = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), v, base);
    if (r.ec != std::errc()) fail(s_.substr(at_, end - at_) + " has more than 64 bits");
    add(Type::integer, std::move(text), Value(v));
    go(end);
    return true;
  }
  void number() {
    if (based_number()) return;
    const size_t whole = digits(at_);
    size_t end = whole;
    const bool after_dot = at_ > 0 && s_[at_ - 1] == '.';
    if (!after_dot && end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) end = digits(end + 1);
    if (!after_dot && end < s_.size() && (s_[end] == 'e' || s_[end] == 'E')) {
      const size_t sign = end + 1 < s_.size() && (s_[end + 1] == '+' || s_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < s_.size() && is_digit(s_[end + 1 + sign])) end = digits(end + 1 + sign);
    }
    std::string text = s_.substr(at_, end - at_);
    std::erase(text, '_');
    if (end == whole) {
      int64_t v = 0;
      const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
      if (r.ec != std::errc()) fail(text + " has more than 64 bits");
      if (text.size() > 1 && text[0] == '0' && v != 0) fail("a number begins with 0");
      add(Type::integer, text, Value(v));
    } else {
      double v = 0;
      const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
      if (r.ec != std::errc()) fail(text + " is outside of the range of numbers");
      add(Type::real, text, Value(v));
    }
    go(end);
  }

  /// Appends the character of \x41, é, \U0001F600 or \101 at `at`, behind the backslash; returns its length.
  size_t numbered(std::string& out, size_t at) {
    const char c = s_[at];
    const bool octal = c >= '0' && c <= '7';
    const size_t most = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : 8;
    const size_t begin = at + (octal ? 0 : 1);
    size_t end = begin;
    uint32_t v = 0;
    while (end < s_.size() && end < begin + most) {
      const char d = s_[end];
      const int digit = hex_digit(d);
      if (digit >= (octal ? 8 : 16)) break;
      v = v * (octal ? 8 : 16) + static_cast<uint32_t>(digit);
      end++;
    }
    const bool complete = octal || end == begin + most;
    if (!complete || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) fail("a string has an escape that is no character");
    append_char(out, v);
    return end - at;
  }
  void string(char quote) {
    std::string out;
    size_t at = at_ + 1;
    for (; at < s_.size() && s_[at] != quote; at++) {
      if (s_[at] != '\\') {
        out += s_[at];
        continue;
      }
      if (++at >= s_.size()) break;
      constexpr std::string_view kNames = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
      const size_t known = kNames.find(s_[at]);
      if (known != std::string_view::npos) out += kMeanings[known];
      else if (s_[at] == '\n') continue;
      else if (s_[at] == 'N') fail("\\N in strings is not supported");
      else if (s_[at] == 'x' || s_[at] == 'u' || s_[at] == 'U' || (s_[at] >= '0' && s_[at] <= '7'))
        at += numbered(out, at) - 1;
      else (out += '\\') += s_[at];
    }
    if (at >= s_.size()) fail("a string does not end");
    add(Type::string, std::move(out));
    go(at + 1);
  }
  void op(std::string& open) {
    constexpr std::string_view kTwo[] = {"**", "//", "==", "!=", "<=", ">="};
    const char c = s_[at_];
    for (std::string_view two : kTwo)
      if (have(two, at_)) {
        add(Type::op, std::string(two));
        return go(at_ + 2);
      }
    constexpr std::string_view kOne = "+-*/%~[](){}<>=.:|,;";
    if (kOne.find(c) == std::string_view::npos) {
      size_t length = 1;
      char_at(s_, at_, length);
      fail("unexpected " + python_repr(std::string_view(s_).substr(at_, length)));
    }
    if (c == '(') open += ')';
    else if (c == '[') open += ']';
    else if (c == '{') open += '}';
    else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(str("unexpected '", c, "'"));
      open.pop_back();
    }
    add(Type::op, std::string(1, c));
    go(at_ + 1);
  }

  std::string s_;
  const std::string& name_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<TemplateToken> tokens_;
};

}  // namespace

std::vector<TemplateToken> lex_template(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace tg::llm::jinja
