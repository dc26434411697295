/// \file Python's str.format.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {
namespace {

/// Largest width and precision of a formatted value.
constexpr int64_t kMaxFieldWidth = 1000;
/// Formats inside of a format, as {:{}} has one.
constexpr int kMaxFormatNesting = 2;

/// What stands behind the colon of a field: [[fill]align][sign][#][0][width][,_][.precision][type].
struct FieldSpec {
  std::string fill = " ";
  char align = 0, sign = 0, group = 0, type = 0;
  bool alternate = false, zeros = false;
  int64_t width = 0, precision = -1;
};

class SpecReader {
 public:
  SpecReader(Interpreter& in, std::string_view spec) : in_(in), s_(spec) {}

  FieldSpec read() {
    size_t length = 1;
    if (!s_.empty()) char_at(s_, 0, length);
    const bool filled = length < s_.size() && is_align(s_[length]);
    if (filled) {
      spec_.fill = s_.substr(0, length);
      spec_.align = s_[length];
      at_ = length + 1;
    } else if (more() && is_align(s_[at_])) spec_.align = s_[at_++];
    if (more() && std::string_view("+- ").find(s_[at_]) != std::string_view::npos) spec_.sign = s_[at_++];
    if (skip('#')) spec_.alternate = true;
    if (more() && s_[at_] == '0') {
      if (!filled) spec_.fill = "0";
      spec_.zeros = !filled && !spec_.align;
      at_++;
    }
    spec_.width = number(0);
    if (more() && (s_[at_] == ',' || s_[at_] == '_')) spec_.group = s_[at_++];
    if (skip('.')) {
      spec_.precision = number(-1);
      if (spec_.precision < 0) in_.fail("a format has no precision behind the point");
    }
    if (more()) spec_.type = s_[at_++];
    if (more()) in_.fail(str("a format has the unknown specification ", python_repr(s_)));
    return spec_;
  }

 private:
  static bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }
  bool more() const { return at_ < s_.size(); }
  bool skip(char c) { return more() && s_[at_] == c && (at_++, true); }
  int64_t number(int64_t absent) {
    if (!more() || s_[at_] < '0' || s_[at_] > '9') return absent;
    int64_t n = 0;
    while (more() && s_[at_] >= '0' && s_[at_] <= '9') {
      n = n * 10 + (s_[at_++] - '0');
      if (n > kMaxFieldWidth) in_.fail("a format is too wide", TemplateError::Reason::limit);
    }
    return n;
  }

  Interpreter& in_;
  std::string_view s_;
  size_t at_ = 0;
  FieldSpec spec_;
};

/// Puts a sign between every `every` digits from the right.
std::string grouped(const std::string& digits, char sign, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); i++) {
    if (i && (digits.size() - i) % every == 0) out += sign;
    out += digits[i];
  }
  return out;
}

Text padded(Interpreter& in, const Text& t, size_t sign, const FieldSpec& spec, char align) {
  const auto n = static_cast<int64_t>(count_chars(t.bytes));
  const int64_t missing = std::max<int64_t>(spec.width - n, 0);
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  in.charge(static_cast<size_t>(missing) * spec.fill.size());
  Text out;
  size_t at = 0;
  if (align == '=') {
    out.append(t.slice(0, sign));
    at = sign;
  }
  for (int64_t i = 0; i < left; i++) out.append(spec.fill);
  out.append(t.slice(at, t.bytes.size()));
  for (int64_t i = left; i < missing; i++) out.append(spec.fill);
  return out;
}

Text formatted_text(Interpreter& in, const Text& text, const FieldSpec& spec) {
  if (spec.align == '=' || spec.sign || spec.alternate || spec.group || (spec.type && spec.type != 's'))
    in.fail("a format of numbers got a string");
  Text t = text;
  if (spec.precision >= 0) t = t.slice(0, char_offset(t.bytes, static_cast<size_t>(spec.precision)));
  return padded(in, t, 0, spec, spec.align ? spec.align : '<');
}

std::string integer_digits(uint64_t size, uint64_t base, bool upper) {
  std::string out;
  do out.insert(out.begin(), (upper ? "0123456789ABCDEF" : "0123456789abcdef")[size % base]);
  while (size /= base);
  return out;
}

/// Adds the sign, and zeros so that digits with separators fill the width.
Text signed_number(Interpreter& in, bool negative, const std::string& prefix, std::string digits,
                   const std::string& rest, const FieldSpec& spec, size_t every) {
  const std::string sign = negative ? "-" : spec.sign == '-' || !spec.sign ? "" : std::string(1, spec.sign);
  std::string body = spec.group ? grouped(digits, spec.group, every) : digits;
  const char align = spec.align ? spec.align : spec.zeros ? '=' : '>';
  const bool fills = spec.group && align == '=' && spec.fill == "0";
  while (fills && static_cast<int64_t>(sign.size() + prefix.size() + body.size() + rest.size()) < spec.width) {
    digits.insert(digits.begin(), '0');
    body = grouped(digits, spec.group, every);
  }
  Text t;
  t.bytes = sign + prefix + body + rest;
  return padded(in, t, sign.size() + prefix.size(), spec, align);
}

Text formatted_integer(Interpreter& in, int64_t v, const FieldSpec& spec) {
  if (spec.precision >= 0) in.fail("a format of an integer has a precision");
  const uint64_t size = v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  const char type = spec.type ? spec.type : 'd';
  if (type == 'c') {
    if (v < 0 || v > 0x10FFFF || spec.sign || spec.alternate || spec.group)
      in.fail("a format of a character got something else");
    Text t;
    append_char(t.bytes, static_cast<uint32_t>(v));
    return padded(in, t, 0, spec, spec.align ? spec.align : '<');
  }
  const uint64_t base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  if (base == 10 && type != 'd' && type != 'n') in.fail(str("a format has the unknown type ", std::string(1, type)));
  if (spec.group == ',' && base != 10) in.fail("a format has commas in a number that is not decimal");
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
  return signed_number(in, v < 0, prefix, integer_digits(size, base, type == 'X'), "", spec, base == 10 ? 3 : 4);
}

/// Returns |v| as the type of a format writes it.
std::string real_digits(Interpreter& in, double size, const FieldSpec& spec) {
  if (!spec.type && spec.precision < 0) return python_real(size);
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  char b[1500];
  const bool alternate = spec.alternate;
  switch (spec.type) {
    case 'e': std::snprintf(b, sizeof b, alternate ? "%#.*e" : "%.*e", precision, size); break;
    case 'E': std::snprintf(b, sizeof b, alternate ? "%#.*E" : "%.*E", precision, size); break;
    case 'f': std::snprintf(b, sizeof b, alternate ? "%#.*f" : "%.*f", precision, size); break;
    case 'F': std::snprintf(b, sizeof b, alternate ? "%#.*F" : "%.*F", precision, size); break;
    case 'g':
    case 'n': std::snprintf(b, sizeof b, alternate ? "%#.*g" : "%.*g", precision, size); break;
    case 'G': std::snprintf(b, sizeof b, alternate ? "%#.*G" : "%.*G", precision, size); break;
    case '%': std::snprintf(b, sizeof b, "%.*f%%", precision, size * 100); break;
    default: in.fail("a format of a number has an unknown type");
  }
  return b;
}

Text formatted_real(Interpreter& in, double v, const FieldSpec& spec) {
  if (!spec.type && spec.precision >= 0) in.fail("a format with a precision needs a type");
  const std::string all = real_digits(in, std::fabs(v), spec);
  const size_t end = std::min(all.find_first_not_of("0123456789"), all.size());
  return signed_number(in, std::signbit(v) && !std::isnan(v), "", all.substr(0, end), all.substr(end), spec, 3);
}

Text formatted(Interpreter& in, const Value& v, std::string_view spec) {
  if (spec.empty()) return in.print(v);
  const FieldSpec s = SpecReader(in, spec).read();
  const bool real = s.type && std::string_view("eEfFgG%").find(s.type) != std::string_view::npos;
  if (v.is_string()) return formatted_text(in, v.text(), s);
  if (v.is_real() || ((v.is_integer() || v.is_bool()) && real)) return formatted_real(in, v.as_double(), s);
  if (v.is_integer() || v.is_bool()) return formatted_integer(in, v.as_integer(), s);
  in.fail(str("a format with a specification got ", kind_name(v.kind())));
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, const Arguments& a) : in_(in), a_(a) {}

  Text run(const Text& format, int level) {
    if (level > kMaxFormatNesting) in_.fail("formats are nested too deeply");
    Text out;
    const std::string& s = format.bytes;
    for (size_t at = 0; at < s.size();) {
      const size_t brace = std::min(s.find_first_of("{}", at), s.size());
      out.append(format.slice(at, brace));
      if (brace == s.size()) break;
      if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {
        out.append(format.slice(brace, brace + 1));
        at = brace + 2;
        continue;
      }
      if (s[brace] == '}') in_.fail("a format has a single brace");
      const size_t end = end_of_field(s, brace + 1);
      const Text shown = field(format.slice(brace + 1, end), level);
      in_.charge(shown.bytes.size());
      out.append(shown);
      at = end + 1;
    }
    return out;
  }

 private:
  size_t end_of_field(const std::string& s, size_t at) {
    int open = 1;
    for (; at < s.size(); at++) {
      if (s[at] == '[') {  // a key has no braces of its own
        const size_t close = s.find(']', at);
        if (close != std::string::npos && s.find_first_of("{}:!", at) > close) at = close;
        continue;
      }
      open += s[at] == '{' ? 1 : s[at] == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    in_.fail("a format has a single brace");
  }
  Text field(const Text& all, int level) {
    const std::string& s = all.bytes;
    size_t name_end = 0;
    for (; name_end < s.size() && s[name_end] != ':' && s[name_end] != '!'; name_end++)
      if (s[name_end] == '[') name_end = std::min(s.find(']', name_end), s.size() - 1);
    Value v = value(s.substr(0, name_end));
    size_t at = name_end;
    if (at < s.size() && s[at] == '!') {
      const char conversion = at + 1 < s.size() ? s[at + 1] : ' ';
      at += 2;
      if ((conversion != 's' && conversion != 'r') || (at < s.size() && s[at] != ':'))
        in_.fail("a format has an unknown conversion");
      Text t;
      if (conversion == 's') t = in_.print(v);
      else in_.show(v, t);
      v = in_.string(std::move(t));
    }
    if (at >= s.size()) return formatted(in_, v, "");
    return formatted(in_, v, run(all.slice(at + 1, s.size()), level + 1).bytes);
  }
  /// Returns the argument a field names, with what follows in .attribute and [key].
  Value value(const std::string& name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value v = argument(name.substr(0, end), name.empty());
    for (size_t at = end; at < name.size();) {
      in_.step();
      if (name[at] == '.') {
        const size_t next = std::min(name.find_first_of(".[", at + 1), name.size());
        if (next == at + 1) in_.fail("a format has an empty attribute");
        v = in_.attribute(v, name.substr(at + 1, next - at - 1));
        at = next;
        continue;
      }
      const size_t close = name.find(']', at);
      if (close == std::string::npos || close == at + 1) in_.fail("a format has an empty key");
      const std::string key = name.substr(at + 1, close - at - 1);
      v = in_.item(v, is_number(key) ? Value(int64_t{std::stol(key)}) : Value(key));
      at = close + 1;
      if (at < name.size() && name[at] != '.' && name[at] != '[') in_.fail("a format has text behind ]");
    }
    return v;
  }
  static bool is_number(const std::string& s) {
    return !s.empty() && s.size() < 10 && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  const Value& argument(const std::string& name, bool next) {
    if (next || is_number(name)) {
      if ((next ? numbered_ : counted_)) in_.fail("a format has numbered fields and fields without a number");
      (next ? counted_ : numbered_) = true;
      const size_t i = next ? next_++ : static_cast<size_t>(std::stol(name));
      if (i >= a_.positional.size()) in_.fail(str("a format asks for argument ", i, " of ", a_.positional.size()));
      return a_.positional[i];
    }
    for (const auto& [key, v] : a_.named)
      if (key == name) return v;
    in_.fail(str("a format asks for ", python_repr(name), ", which is not there"));
  }

  Interpreter& in_;
  const Arguments& a_;
  size_t next_ = 0;
  bool counted_ = false, numbered_ = false;
};

}  // namespace

Text brace_format(Interpreter& in, const Text& format, const Arguments& a) {
  return BraceFormatter(in, a).run(format, 0);
}

}  // namespace tg::llm::jinja
