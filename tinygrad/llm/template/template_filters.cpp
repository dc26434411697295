/// \file Filters of single values, and tests.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {
namespace {

Value text_filter(Interpreter& in, const Value& v, const Arguments& a, std::string (*make)(std::string_view)) {
  in.bind("the filter", a, {});
  const Text t = in.print(v);
  in.step(t.bytes.size());
  return in.string(t.derived(make(t.bytes)));
}

Value upper(Interpreter& in, const Value& v, const Arguments& a) { return text_filter(in, v, a, upper_text); }
Value lower(Interpreter& in, const Value& v, const Arguments& a) { return text_filter(in, v, a, lower_text); }
Value capitalize(Interpreter& in, const Value& v, const Arguments& a) { return text_filter(in, v, a, capitalize_text); }

/// Makes the first letter of each part between spaces, hyphens and brackets upper case.
std::string title_words(std::string_view s) {
  std::string out, word;
  size_t length = 1;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 1;
    char_at(word, 0, first);
    out += upper_text(std::string_view(word).substr(0, first)) + lower_text(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < s.size(); at += length) {
    const uint32_t c = char_at(s, at, length);
    const bool cuts = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space_char(c);
    if (cuts) flush();
    (cuts ? out : word) += s.substr(at, length);
  }
  flush();
  return out;
}
Value title(Interpreter& in, const Value& v, const Arguments& a) { return text_filter(in, v, a, title_words); }

Value trim(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("trim", a, {"chars"});
  const Text t = in.print(v);
  in.step(t.bytes.size());
  const bool given = b[0] && !b[0]->is_none();
  return in.string(strip_text(t, given ? &b[0]->as_string() : nullptr, true, true));
}

Value make_string(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("string", a, {});
  return v.is_string() ? v : in.string(in.print(v));
}

Value safe(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("safe", a, {});
  Text t = in.print(v);
  t.markup = true;
  return in.string(std::move(t));
}

Text escaped(Interpreter& in, const Text& t) {
  Text out;
  for (size_t at = 0; at < t.bytes.size();) {
    const size_t next = std::min(t.bytes.find_first_of("&<>'\"", at), t.bytes.size());
    out.append(t.slice(at, next));
    at = next;
    if (at == t.bytes.size()) break;
    const char c = t.bytes[at++];
    out.append(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : "&#39;");
  }
  in.charge(out.bytes.size());
  out.markup = true;
  return out;
}
Value escape(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("escape", a, {});
  if (v.is_string() && v.text().markup) return v;
  return in.string(escaped(in, in.print(v)));
}
Value force_escape(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("forceescape", a, {});
  return in.string(escaped(in, in.print(v)));
}

Value replace(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("replace", a, {"old", "new", "count"}, 2);
  Text t = in.print(v);
  t.markup = false;
  const Text from = in.print(*b[0]), to = in.print(*b[1]);
  in.step(t.bytes.size());
  in.charge((t.bytes.size() + 1) / std::max<size_t>(from.bytes.size(), 1) * to.bytes.size());
  return in.string(replace_text(t, from, to, b[2] && !b[2]->is_none() ? in.integer(*b[2], "replace") : -1));
}

Value indent(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("indent", a, {"width", "first", "blank"});
  std::string by = "    ";
  if (b[0] && b[0]->is_string()) by = b[0]->as_string();
  else if (b[0]) {
    const int64_t width = std::max<int64_t>(in.integer(*b[0], "indent"), 0);
    if (width > 1000) in.fail("indent is wider than 1000", TemplateError::Reason::limit);
    by.assign(static_cast<size_t>(width), ' ');
  }
  if (!v.is_string()) in.fail(str("indent takes a string, got ", kind_name(v.kind())));
  const bool first = b[1] && in.truth(*b[1]), blank = b[2] && in.truth(*b[2]);
  Text t = in.print(v);
  t.append("\n");  // so that a line break at the end stays
  in.step(t.bytes.size());
  const std::vector<Text> lines = lines_of(in, t, false);
  Text out;
  for (size_t i = 0; i < lines.size(); i++) {
    if (i) out.append("\n");
    if (i == 0 ? first : blank || !lines[i].bytes.empty()) {
      in.charge(by.size());
      out.append(by);
    }
    out.append(lines[i]);
  }
  return in.string(std::move(out));
}

Value to_json(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = b[0] && in.truth(*b[0]);
  if (b[1] && !b[1]->is_none()) {
    const int64_t n = in.integer(*b[1], "tojson");
    if (n > 64) in.fail("tojson indents by more than 64", TemplateError::Reason::limit);
    style.indent = static_cast<int>(std::max<int64_t>(n, 0));
  }
  if (b[2] && !b[2]->is_none()) {
    if (b[2]->size() != 2) in.fail("tojson takes two separators");
    style.item = b[2]->items()[0].as_string();
    style.key = b[2]->items()[1].as_string();
    if (style.indent >= 0 && style.item == ", ") style.item = ",";
  }
  style.sort_keys = b[3] && in.truth(*b[3]);
  std::string json;
  try {
    json = v.json(style, in.limits().output_bytes);
  } catch (const ValueError& e) { in.fail(e.what()); }
  in.step(json.size() * 4);
  Text t;
  t.bytes = std::move(json);
  return in.string(std::move(t));
}

Value fallback(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("default", a, {"default_value", "boolean"});
  const bool absent = v.is_undefined() || (b[1] && in.truth(*b[1]) && !in.truth(v));
  return absent ? (b[0] ? *b[0] : Value("")) : v;
}

/// Returns the integer a real number has before its point.
std::optional<Value> whole_part(Interpreter& in, double real) {
  if (std::isnan(real)) return {};
  if (!(real > -9.2233720368547758e18 && real < 9.2233720368547758e18)) in.fail("an integer has more than 64 bits");
  return Value(static_cast<int64_t>(real));
}

Value make_integer(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("int", a, {"default", "base"});
  if (v.is_undefined()) in.fail(v.looked_for());
  if (v.is_integer() || v.is_bool()) return Value(v.as_integer());
  std::optional<Value> got;
  if (v.is_real()) got = whole_part(in, v.as_double());
  if (v.is_string()) {
    got = read_integer(in, v.text(), b[1] ? in.integer(*b[1], "int") : 10);
    const std::optional<double> real = got ? std::nullopt : read_real(v.text());
    if (real && !std::isinf(*real)) got = whole_part(in, *real);
  }
  return got ? *got : b[0] ? *b[0] : Value(0);
}

Value make_real(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("float", a, {"default"});
  if (v.is_undefined()) in.fail(v.looked_for());
  if (v.is_number() || v.is_bool()) return Value(v.as_double());
  const std::optional<double> real = v.is_string() ? read_real(v.text()) : std::nullopt;
  return real ? Value(*real) : b[0] ? *b[0] : Value(0.0);
}

Value absolute(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("abs", a, {});
  if (v.is_real()) return Value(std::fabs(v.as_double()));
  const int64_t i = in.integer(v, "abs");
  if (i == INT64_MIN) in.fail("an integer has more than 64 bits");
  return Value(i < 0 ? -i : i);
}

Value round(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("round", a, {"precision", "method"});
  if (!v.is_number() && !v.is_bool()) in.fail("round takes a number");
  const int64_t digits = b[0] ? in.integer(*b[0], "round") : 0;
  const std::string method = b[1] ? b[1]->as_string() : "common";
  if (method != "common" && method != "ceil" && method != "floor") in.fail("round takes common, ceil or floor");
  if (digits < -300 || digits > 300) in.fail("round has too many digits");
  const double x = v.as_double();
  if (method == "common") {
    if (!v.is_real() && digits >= 0) return v.is_bool() ? Value(v.as_integer()) : v;
    if (digits < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-digits));
      const double r = std::nearbyint(x / unit) * unit;
      return v.is_real() ? Value(r) : Value(static_cast<int64_t>(r));
    }
    char text[700];
    std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), x);
    double r = 0;
    std::from_chars(text, text + std::char_traits<char>::length(text), r);
    return Value(r);
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double whole = method == "ceil" ? std::ceil(x * unit) : std::floor(x * unit);
  if (!std::isfinite(whole)) in.fail("round got a number that is not finite");
  return Value((whole == 0 ? 0.0 : whole) / unit);  // Python's ceil and floor give integers: there is no -0
}

Value format(Interpreter& in, const Value& v, const Arguments& a) {
  if (!a.named.empty() && !a.positional.empty()) in.fail("format takes positional or named arguments, not both");
  if (a.named.empty()) return in.percent_format(in.print(v), Value::tuple(a.positional));
  std::vector<Value::Entry> entries;
  for (const auto& [name, value] : a.named) entries.emplace_back(Value(name), value);
  return in.percent_format(in.print(v), Value::dict(std::move(entries)));
}

Value attr(Interpreter& in, const Value& v, const Arguments& a) {
  const std::string name = in.bind("attr", a, {"name"}, 1)[0]->as_string();
  const bool method = method_kind(v, name) != MethodKind::none;
  return method || v.kind() == Value::Kind::space ? in.attribute(v, name) : in.undefined(v, name);
}

Value center(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("center", a, {"width"});
  return in.method(in.string(in.print(v)), "center", {{b[0] ? *b[0] : Value(80)}, {}});
}

Value word_count(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("wordcount", a, {});
  const Text t = in.print(v);
  int64_t n = 0;
  size_t length = 1;
  bool inside = false;
  for (size_t at = 0; at < t.bytes.size(); at += length) {
    const uint32_t c = char_at(t.bytes, at, length);
    const bool word = is_alpha_char(c) || is_numeric_char(c) || c == '_';
    n += word && !inside;
    inside = word;
  }
  return Value(n);
}

Value truncate(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("truncate", a, {"length", "killwords", "end", "leeway"});
  const int64_t length = b[0] ? in.integer(*b[0], "truncate") : 255;
  const std::string end = b[2] ? b[2]->as_string() : "...";
  const int64_t leeway = b[3] && !b[3]->is_none() ? in.integer(*b[3], "truncate") : 5;
  const auto keep = length - static_cast<int64_t>(count_chars(end));
  if (keep < 0 || leeway < 0) in.fail(str("truncate got the length ", length));
  const bool listed = v.is_list() || v.is_dict() || v.is_undefined() || v.kind() == Value::Kind::tuple;
  if (listed && static_cast<int64_t>(v.size()) <= length + leeway) return v;
  if (!v.is_string()) in.fail(str("truncate takes a string, got ", kind_name(v.kind())));
  const Text& t = v.text();
  if (static_cast<int64_t>(count_chars(t.bytes)) <= length + leeway) return v;
  Text out = t.slice(0, char_offset(t.bytes, static_cast<size_t>(keep)));
  if (!b[1] || !in.truth(*b[1])) {
    const size_t space = out.bytes.rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(end);
  return in.string(std::move(out));
}

Value url_encode(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("urlencode", a, {});
  if (v.is_dict() || v.is_list()) in.fail("urlencode takes text");
  const Text t = in.print(v);
  std::string out;
  for (const char c : t.bytes) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain) out += c;
    else ((out += '%') += "0123456789ABCDEF"[u >> 4]) += "0123456789ABCDEF"[u & 15];
  }
  return in.string(t.derived(std::move(out)));
}

// ---- tests ----

bool divisible(Interpreter& in, const Value& v, const Value& by) {
  return in.equal(in.arithmetic(Operator::mod, v, by), Value(0));
}

bool is_case(Interpreter& in, const Value& v, bool upper) {
  return in.method(in.string(in.print(v)), upper ? "isupper" : "islower", {}).as_bool();
}

bool test_kind(const std::string& name, const Value& v, bool is_loop, bool& known) {
  using Kind = Value::Kind;
  const Kind k = v.kind();
  const bool view = k == Kind::view && !v.sequence().lazy;
  const bool indexed = view && v.sequence().label.starts_with("range");
  const bool listed = k == Kind::list || k == Kind::tuple || k == Kind::dict || k == Kind::string || indexed;
  known = true;
  if (name == "defined") return k != Kind::undefined;
  if (name == "undefined") return k == Kind::undefined;
  if (name == "none") return k == Kind::none;
  if (name == "boolean") return k == Kind::boolean;
  if (name == "true") return k == Kind::boolean && v.as_bool();
  if (name == "false") return k == Kind::boolean && !v.as_bool();
  if (name == "integer") return k == Kind::integer;
  if (name == "float") return k == Kind::real;
  if (name == "number") return k == Kind::integer || k == Kind::real || k == Kind::boolean;
  if (name == "string") return k == Kind::string;
  if (name == "mapping") return k == Kind::dict;
  if (name == "sequence") return listed || k == Kind::undefined;
  if (name == "iterable") return listed || k == Kind::view || k == Kind::undefined || is_loop;
  if (name == "callable") return k == Kind::callable || k == Kind::undefined || is_loop;
  if (name == "escaped") return k == Kind::string && v.text().markup;
  known = false;
  return false;
}

bool is_test(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "defined", "undefined", "none",    "boolean",     "true",     "false",    "integer",  "float",
      "number",  "string",    "mapping", "sequence",    "iterable", "callable", "escaped",  "eq",
      "==",      "equalto",   "ne",      "!=",          "lt",       "<",        "lessthan", "le",
      "<=",      "gt",        ">",       "greaterthan", "ge",       ">=",       "in",       "divisibleby",
      "sameas",  "filter",    "test",    "even",        "odd",      "lower",    "upper"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

const std::unordered_map<std::string_view, Operator>& compare_tests() {
  static const std::unordered_map<std::string_view, Operator> kTests = {
      {"eq", Operator::eq},          {"==", Operator::eq},       {"equalto", Operator::eq}, {"ne", Operator::ne},
      {"lt", Operator::lt},          {"lessthan", Operator::lt}, {"le", Operator::le},      {"gt", Operator::gt},
      {"greaterthan", Operator::gt}, {"ge", Operator::ge},       {"in", Operator::in}};
  return kTests;
}

bool compares(Interpreter& in, Operator op, const Value& v, const Value& other) {
  switch (op) {
    case Operator::eq: return in.equal(v, other);
    case Operator::ne: return !in.equal(v, other);
    case Operator::lt: return in.less(v, other);
    case Operator::gt: return in.less(other, v);
    case Operator::le: return in.less(v, other) || in.equal(v, other);
    case Operator::ge: return in.less(other, v) || in.equal(v, other);
    default: return in.contains(other, v);
  }
}

}  // namespace

bool Interpreter::test(const std::string& name, const Value& v, const Arguments& a) {
  step();
  bool known = false;
  const bool holds = test_kind(name, v, is_loop(v), known);
  if (known) {
    bind(name, a, {});
    return holds;
  }
  const std::string_view operators[] = {"==", "!=", "<", "<=", ">", ">="};
  std::string plain = name;
  constexpr std::string_view kPlain[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  for (size_t i = 0; i < 6; i++)
    if (name == operators[i]) plain = kPlain[i];
  const auto found = compare_tests().find(plain);
  if (found != compare_tests().end()) return compares(*this, found->second, v, *bind(name, a, {"other"}, 1)[0]);
  if (name == "divisibleby") return divisible(*this, v, *bind(name, a, {"num"}, 1)[0]);
  if (name == "sameas") {
    const Value& other = *bind(name, a, {"other"}, 1)[0];
    const bool listed = v.is_list() || v.kind() == Value::Kind::tuple || v.kind() == Value::Kind::view;
    if (listed && v.kind() == other.kind()) return &v.sequence() == &other.sequence();
    return v.kind() == other.kind() && equal(v, other);
  }
  if ((name == "filter" || name == "test") && !is_hashable(v)) fail("expected a name");
  if (name == "test") return v.is_string() && is_test(v.as_string());
  if (name == "filter") return v.is_string() && find_filter(v.as_string());
  bind(name, a, {});
  if (name == "even" || name == "odd")
    return equal(arithmetic(Operator::mod, v, Value(2)), Value(name == "even" ? 0 : 1));
  if (name == "lower" || name == "upper") return is_case(*this, v, name == "upper");
  fail(str("the test ", python_repr(name), " is not supported"));
}

Filter find_filter(const std::string& name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {{"abs", absolute},
                                                                        {"attr", attr},
                                                                        {"capitalize", capitalize},
                                                                        {"center", center},
                                                                        {"d", fallback},
                                                                        {"default", fallback},
                                                                        {"e", escape},
                                                                        {"escape", escape},
                                                                        {"float", make_real},
                                                                        {"format", format},
                                                                        {"forceescape", force_escape},
                                                                        {"indent", indent},
                                                                        {"int", make_integer},
                                                                        {"lower", lower},
                                                                        {"replace", replace},
                                                                        {"round", round},
                                                                        {"safe", safe},
                                                                        {"string", make_string},
                                                                        {"title", title},
                                                                        {"tojson", to_json},
                                                                        {"trim", trim},
                                                                        {"truncate", truncate},
                                                                        {"upper", upper},
                                                                        {"urlencode", url_encode},
                                                                        {"wordcount", word_count}};
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? find_sequence_filter(name) : found->second;
}

Value Interpreter::filter(const std::string& name, const Value& v, const Arguments& a) {
  step();
  const Filter f = find_filter(name);
  if (!f) fail(str("the filter ", python_repr(name), " is not supported"));
  return f(*this, v, a);
}

}  // namespace tg::llm::jinja
