/// \file Arithmetic of templates, and Python's % for strings.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {
namespace {

/// Largest precision and width of a formatted number.
constexpr int kMaxFormatWidth = 1000;

bool is_arithmetic(const Value& v) { return v.is_number() || v.is_bool(); }

[[noreturn]] void overflow(const Interpreter& in) { in.fail("an integer has more than 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

double real_modulo(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r == 0 ? std::copysign(0.0, b) : r;
}

Value integer_power(const Interpreter& in, int64_t a, int64_t b) {
  if (b < 0) {
    if (a == 0) in.fail("0 has no negative power");
    return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  int64_t result = 1;
  for (int64_t base = a; b > 0; b >>= 1) {
    if (b & 1 && __builtin_mul_overflow(result, base, &result)) overflow(in);
    if (b > 1 && __builtin_mul_overflow(base, base, &base)) overflow(in);
  }
  return Value(result);
}

Value integers(const Interpreter& in, Operator op, int64_t a, int64_t b) {
  int64_t r = 0;
  const bool divides = op == Operator::div || op == Operator::floor_div || op == Operator::mod;
  if (divides && b == 0) in.fail("division by zero");
  if (divides && a == INT64_MIN && b == -1) overflow(in);
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &r)) overflow(in);
      return Value(r);
    case Operator::sub:
      if (__builtin_sub_overflow(a, b, &r)) overflow(in);
      return Value(r);
    case Operator::mul:
      if (__builtin_mul_overflow(a, b, &r)) overflow(in);
      return Value(r);
    case Operator::div: return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::floor_div: return Value(floor_divide(a, b));
    case Operator::mod: return Value(a - floor_divide(a, b) * b);
    default: return integer_power(in, a, b);
  }
}

Value reals(const Interpreter& in, Operator op, double a, double b) {
  const bool divides = op == Operator::div || op == Operator::floor_div || op == Operator::mod;
  if (divides && b == 0) in.fail("division by zero");
  switch (op) {
    case Operator::add: return Value(a + b);
    case Operator::sub: return Value(a - b);
    case Operator::mul: return Value(a * b);
    case Operator::div: return Value(a / b);
    case Operator::floor_div: return Value(std::floor((a - real_modulo(a, b)) / b + 0.5));
    case Operator::mod: return Value(real_modulo(a, b));
    default: break;
  }
  if (a == 0 && b < 0) in.fail("0 has no negative power");
  if (a < 0 && b != std::floor(b)) in.fail("a power is a complex number");
  const double r = std::pow(a, b);
  if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) in.fail("a power is outside of the range of numbers");
  return Value(r);
}

Value repeated(Interpreter& in, const Value& v, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const auto size = static_cast<int64_t>(v.size());
  const auto unit = static_cast<int64_t>(v.is_string() ? 1 : sizeof(Value));
  if (size > 0 && times > static_cast<int64_t>(in.limits().value_bytes) / size / unit)
    in.fail(str("values take more than ", in.limits().value_bytes, " bytes"), TemplateError::Reason::limit);
  in.charge(static_cast<size_t>(size * times * unit));
  if (size == 0) times = 0;
  if (v.is_string()) {
    Text t;
    t.markup = v.text().markup;
    for (int64_t i = 0; i < times; i++) t.append(v.text());
    return Value(std::move(t));
  }
  std::vector<Value> out;
  for (int64_t i = 0; i < times; i++) out.insert(out.end(), v.items().begin(), v.items().end());
  return v.is_list() ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

bool is_sequence(const Value& v) { return v.is_string() || v.is_list() || v.kind() == Value::Kind::tuple; }

Text escaped_unless_markup(Interpreter& in, const Value& v) {
  return v.text().markup ? v.text() : in.filter("escape", v, {}).text();
}

Value joined(Interpreter& in, const Value& a, const Value& b) {
  if (a.is_string()) {
    const bool markup = a.text().markup || b.text().markup;
    Text t = markup ? escaped_unless_markup(in, a) : a.text();
    t.append(markup ? escaped_unless_markup(in, b) : b.text());
    t.markup = markup;
    return in.string(std::move(t));
  }
  std::vector<Value> out(a.items().begin(), a.items().end());
  out.insert(out.end(), b.items().begin(), b.items().end());
  in.charge(out.size() * sizeof(Value));
  return a.is_list() ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

/// The parts of one % in a format.
struct Directive {
  std::string flags;
  int width = -1, precision = -1;
  char type = 's';
};

Text padded(const Text& t, const Directive& d, bool number) {
  const auto n = static_cast<int>(count_chars(t.bytes));
  if (n >= d.width) return t;
  const auto missing = static_cast<size_t>(d.width - n);
  Text out;
  const bool left = d.flags.find('-') != std::string::npos, zero = number && d.flags.find('0') != std::string::npos;
  if (left) {
    out = t;
    out.append(std::string(missing, ' '));
  } else if (zero) {
    const size_t sign = !t.bytes.empty() && (t.bytes[0] == '-' || t.bytes[0] == '+' || t.bytes[0] == ' ') ? 1 : 0;
    out.append(t.bytes.substr(0, sign) + std::string(missing, '0') + t.bytes.substr(sign));
  } else {
    out.append(std::string(missing, ' '));
    out.append(t);
  }
  return out;
}

std::string sign_of(bool negative, const Directive& d) {
  if (negative) return "-";
  return d.flags.find('+') != std::string::npos ? "+" : d.flags.find(' ') != std::string::npos ? " " : "";
}

std::string integer_text(const Interpreter& in, const Value& v, const Directive& d) {
  if (!is_arithmetic(v)) in.fail(str("%", d.type, " takes a number, got ", kind_name(v.kind())));
  const double real = v.as_double();
  if (v.is_real() && !(std::fabs(real) < 9.2e18)) in.fail("a number is outside of the range of integers");
  if (v.is_real() && d.type != 'd' && d.type != 'i' && d.type != 'u') in.fail(str("%", d.type, " takes an integer"));
  const int64_t i = v.is_real() ? static_cast<int64_t>(real) : v.as_integer();
  const uint64_t size = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
  char b[40];
  const char* format = d.type == 'x' ? "%llx" : d.type == 'X' ? "%llX" : d.type == 'o' ? "%llo" : "%llu";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(b, sizeof b, format, static_cast<unsigned long long>(size));
#pragma GCC diagnostic pop
  std::string digits = b;
  if (d.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<size_t>(d.precision) - digits.size(), '0');
  const bool prefix = d.flags.find('#') != std::string::npos && d.type != 'd' && d.type != 'i' && d.type != 'u';
  return sign_of(i < 0, d) + (prefix ? std::string("0") + d.type : "") + digits;
}

std::string real_text(const Interpreter& in, const Value& v, const Directive& d) {
  if (!is_arithmetic(v)) in.fail(str("%", d.type, " takes a number, got ", kind_name(v.kind())));
  const double real = v.as_double();
  const int precision = d.precision < 0 ? 6 : d.precision;
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  const double size = std::fabs(real);
  int n = 0;
  switch (d.type) {
    case 'e': n = std::snprintf(out.data(), out.size(), "%.*e", precision, size); break;
    case 'E': n = std::snprintf(out.data(), out.size(), "%.*E", precision, size); break;
    case 'g': n = std::snprintf(out.data(), out.size(), "%.*g", precision, size); break;
    case 'G': n = std::snprintf(out.data(), out.size(), "%.*G", precision, size); break;
    default: n = std::snprintf(out.data(), out.size(), "%.*f", precision, size);
  }
  out.resize(static_cast<size_t>(n));
  return sign_of(std::signbit(real), d) + out;
}

/// Reads the arguments of % one after the other.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, const Text& format, const Value& arguments)
      : in_(in), format_(format), arguments_(arguments), tuple_(arguments.kind() == Value::Kind::tuple) {}

  Text run() {
    const std::string& s = format_.bytes;
    while (at_ < s.size()) {
      const size_t percent = std::min(s.find('%', at_), s.size());
      out_.append(format_.slice(at_, percent));
      at_ = percent;
      if (at_ < s.size()) directive();
      if (out_.bytes.size() > in_.limits().output_bytes)
        in_.fail("a formatted text is too long", TemplateError::Reason::limit);
    }
    // Python takes whatever can be asked for an item as a mapping, even a list.
    const bool mapping = arguments_.is_dict() || arguments_.is_list() || arguments_.is_undefined() ||
                         (arguments_.kind() == Value::Kind::view && arguments_.sequence().label.starts_with("range"));
    const bool unused = tuple_ ? used_ < arguments_.size() : !named_ && !mapping && used_ == 0;
    if (unused) in_.fail("not all arguments of a format are used");
    return std::move(out_);
  }

 private:
  char now() {
    if (at_ >= format_.bytes.size()) in_.fail("a format ends inside of %");
    return format_.bytes[at_];
  }
  const Value& next() {
    if (tuple_) {
      if (used_ >= arguments_.size()) in_.fail("not enough arguments for a format");
      return arguments_.items()[used_++];
    }
    if (used_++) in_.fail("not enough arguments for a format");
    return arguments_;
  }
  int number() {
    if (now() == '*') {
      at_++;
      const int64_t n = in_.integer(next(), "a format's width");
      if (n < 0 || n > kMaxFormatWidth) in_.fail("a format is too wide", TemplateError::Reason::limit);
      return static_cast<int>(n);
    }
    int n = 0;
    while (now() >= '0' && now() <= '9') {
      n = n * 10 + (format_.bytes[at_++] - '0');
      if (n > kMaxFormatWidth) in_.fail("a format is too wide", TemplateError::Reason::limit);
    }
    return n;
  }
  void directive() {
    at_++;
    Directive d;
    const Value* named = nullptr;
    if (now() == '(') {
      const size_t end = format_.bytes.find(')', at_);
      if (end == std::string::npos) in_.fail("a format has a key without an end");
      const std::string key = format_.bytes.substr(at_ + 1, end - at_ - 1);
      named = arguments_.find(key);
      if (!named) in_.fail(str("a format asks for the key ", python_repr(key), ", which is not there"));
      named_ = true;
      at_ = end + 1;
    }
    while (std::string_view("-+ 0#").find(now()) != std::string_view::npos) d.flags += format_.bytes[at_++];
    if (now() == '*' || (now() >= '0' && now() <= '9')) d.width = number();
    if (now() == '.') {
      at_++;
      d.precision = number();
    }
    d.type = now();
    at_++;
    if (d.type == '%') return out_.append_trusted("%");
    value(d, named ? *named : next());
  }
  void value(const Directive& d, const Value& v) {
    if (d.type == 's' || d.type == 'r' || d.type == 'a') {
      Text t;
      if (d.type == 's') t = in_.print(v);
      else in_.show(v, t);
      if (d.precision >= 0) t = t.slice(0, char_offset(t.bytes, static_cast<size_t>(d.precision)));
      return out_.append(padded(t, d, false));
    }
    Text t;
    if (d.type == 'c') {
      if (v.is_string() && count_chars(v.as_string()) == 1) return out_.append(padded(v.text(), d, false));
      const int64_t c = in_.integer(v, "%c");
      if (c < 0 || c > 0x10FFFF) in_.fail("%c takes a character");
      append_char(t.bytes, static_cast<uint32_t>(c));
      return out_.append(padded(t, d, false));
    }
    if (std::string_view("diuxXo").find(d.type) != std::string_view::npos) t.bytes = integer_text(in_, v, d);
    else if (std::string_view("eEfFgG").find(d.type) != std::string_view::npos) t.bytes = real_text(in_, v, d);
    else in_.fail(str("a format has the unknown type ", python_repr(std::string(1, d.type))));
    out_.append(padded(t, d, true));
  }

  Interpreter& in_;
  const Text& format_;
  const Value& arguments_;
  bool tuple_, named_ = false;
  size_t at_ = 0, used_ = 0;
  Text out_;
};

}  // namespace

Value Interpreter::percent_format(const Text& format, const Value& arguments) {
  return string(PercentFormatter(*this, format, arguments).run());
}

Value Interpreter::arithmetic(Operator op, const Value& a, const Value& b) {
  if (op == Operator::mod && a.is_string()) return percent_format(a.text(), b);
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) fail(v->looked_for());
  if (is_arithmetic(a) && is_arithmetic(b)) {
    if (a.is_real() || b.is_real()) return reals(*this, op, a.as_double(), b.as_double());
    return integers(*this, op, a.as_integer(), b.as_integer());
  }
  if (op == Operator::add && is_sequence(a) && a.kind() == b.kind()) return joined(*this, a, b);
  if (op == Operator::mul && is_sequence(a) && (b.is_integer() || b.is_bool()))
    return repeated(*this, a, b.as_integer());
  if (op == Operator::mul && is_sequence(b) && (a.is_integer() || a.is_bool()))
    return repeated(*this, b, a.as_integer());
  constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  fail(str(kSigns[static_cast<size_t>(op)], " takes no ", kind_name(a.kind()), " and ", kind_name(b.kind())));
}

}  // namespace tg::llm::jinja
