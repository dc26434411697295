/// \file Methods of strings and dictionaries, and functions that templates call.
#include <algorithm>
#include <ctime>
#include <unordered_set>

#include "tinygrad/llm/template/char_tables.h"
#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {

namespace {

/// Longest sequence range() makes, as in Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;
/// What one part of a text that is split takes beside its bytes.
constexpr size_t kPartBytes = 2 * sizeof(Text) + sizeof(Value);
/// Widest tab that expandtabs makes.
constexpr int64_t kMaxTabSize = 1000;

using Names = std::unordered_set<std::string_view>;

bool in_set(std::string_view c, const std::string* characters) {
  size_t length = 1;
  if (!characters) return is_space_char(char_at(c, 0, length));
  return characters->find(c) != std::string::npos;
}

}  // namespace

MethodKind method_kind(const Value& v, const std::string& name) {
  static const Names kText = {"capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
                              "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
                              "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
                              "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
                              "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
                              "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
                              "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
                              "swapcase",     "title",       "translate", "upper",      "zfill"};
  static const Names kDict = {"items", "keys", "values", "get", "copy", "fromkeys"};
  static const Names kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
  static const Names kList = {"count", "index", "copy"};
  static const Names kListChanges = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  if (v.is_string()) return kText.contains(name) ? MethodKind::known : MethodKind::none;
  if (v.is_dict() && kDict.contains(name)) return MethodKind::known;
  if (v.is_dict()) return kDictChanges.contains(name) ? MethodKind::changes : MethodKind::none;
  if (v.is_list() && kListChanges.contains(name)) return MethodKind::changes;
  const bool range = v.kind() == Value::Kind::view && v.sequence().label.starts_with("range");
  const bool counts = v.is_list() || v.kind() == Value::Kind::tuple || range;
  return counts && kList.contains(name) && (name != "copy" || v.is_list()) ? MethodKind::known : MethodKind::none;
}

Text strip_text(const Text& t, const std::string* characters, bool left, bool right) {
  const std::string_view s = t.bytes;
  size_t begin = 0, end = 0, length = 1;
  bool leading = left;
  for (size_t at = 0; at < s.size(); at += length) {
    char_at(s, at, length);
    const bool strip = in_set(s.substr(at, length), characters);
    if (leading && strip) begin = at + length;
    else {
      leading = false;
      if (!strip) end = at + length;
    }
  }
  return t.slice(begin, right ? std::max(begin, end) : s.size());
}

namespace {

std::vector<Text> split_words(Interpreter& in, const Text& t, int64_t most, bool from_right) {
  std::vector<ByteRange> words;
  const std::string_view s = t.bytes;
  size_t length = 1;
  bool inside = false;
  for (size_t at = 0; at < s.size(); at += length) {
    if (is_space_char(char_at(s, at, length))) inside = false;
    else if (!inside) {
      in.charge(kPartBytes);
      words.push_back({at, at + length});
      inside = true;
    } else words.back().end = at + length;
  }
  const auto n = static_cast<int64_t>(words.size());
  std::vector<Text> out;
  if (most >= 0 && n > most + 1) {
    const auto rest = static_cast<size_t>(n - most);
    if (from_right) {
      words.erase(words.begin() + 1, words.begin() + static_cast<std::ptrdiff_t>(rest));
      size_t end = 0;
      end = strip_text(t.slice(0, words.size() > 1 ? words[1].begin : s.size()), nullptr, false, true).bytes.size();
      words[0] = {0, end};
    } else {
      words.resize(static_cast<size_t>(most) + 1);
      words.back().end = s.size();
    }
  }
  for (const ByteRange& w : words) out.push_back(t.slice(w.begin, w.end));
  return out;
}

}  // namespace

std::vector<Text> split_text(Interpreter& in, const Text& t, const std::string* separator, int64_t most,
                             bool from_right) {
  if (!separator) return split_words(in, t, most, from_right);
  std::vector<size_t> cuts;
  const std::string& s = t.bytes;
  if (from_right) {
    for (size_t end = s.size(); most < 0 || static_cast<int64_t>(cuts.size()) < most;) {
      if (end < separator->size()) break;
      const size_t at = s.rfind(*separator, end - separator->size());
      if (at == std::string::npos) break;
      in.charge(kPartBytes);
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    for (size_t at = s.find(*separator); at != std::string::npos; at = s.find(*separator, at + separator->size())) {
      if (most >= 0 && static_cast<int64_t>(cuts.size()) >= most) break;
      in.charge(kPartBytes);
      cuts.push_back(at);
    }
  }
  std::vector<Text> out;
  size_t begin = 0;
  for (size_t cut : cuts) {
    out.push_back(t.slice(begin, cut));
    begin = cut + separator->size();
  }
  out.push_back(t.slice(begin, s.size()));
  return out;
}

Text replace_text(const Text& t, const Text& from, const Text& to, int64_t most) {
  Text out;
  out.markup = t.markup;
  const std::string& s = t.bytes;
  size_t at = 0, length = 1;
  int64_t done = 0;
  if (from.bytes.empty()) {
    for (; most < 0 || done < most; done++) {
      out.append(to);
      if (at >= s.size()) break;
      char_at(s, at, length);
      out.append(t.slice(at, at + length));
      at += length;
    }
  } else {
    for (; most < 0 || done < most; done++) {
      const size_t found = s.find(from.bytes, at);
      if (found == std::string::npos) break;
      out.append(t.slice(at, found));
      out.append(to);
      at = found + from.bytes.size();
    }
  }
  if (at < s.size()) out.append(t.slice(at, s.size()));
  return out;
}

std::vector<Text> lines_of(Interpreter& in, const Text& t, bool keep_ends) {
  std::vector<Text> out;
  size_t begin = 0, length = 1;
  const std::string& s = t.bytes;
  for (size_t at = 0; at < s.size(); at += length) {
    const uint32_t c = char_at(s, at, length);
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    const size_t end = at + length + (c == '\r' && at + 1 < s.size() && s[at + 1] == '\n' ? 1 : 0);
    in.charge(kPartBytes);
    out.push_back(t.slice(begin, keep_ends ? end : at));
    begin = end;
    length = end - at;
  }
  if (begin < s.size()) out.push_back(t.slice(begin, s.size()));
  return out;
}

namespace {

const std::string* text_or_null(Interpreter& in, const Value* v) {
  if (!v || v->is_none()) return nullptr;
  if (!v->is_string()) in.fail(str("got ", kind_name(v->kind()), ", expected a string"));
  return &v->as_string();
}

const Text& needed_text(Interpreter& in, const Value* v) {
  if (!v || !v->is_string()) in.fail(str("got ", v ? kind_name(v->kind()) : "nothing", ", expected a string"));
  return v->text();
}

Value texts(Interpreter& in, std::vector<Text> parts) {
  std::vector<Value> out;
  for (Text& p : parts) out.push_back(in.string(std::move(p)));
  return Value::list(std::move(out));
}

Value split_method(Interpreter& in, const Text& t, const std::string& name, const Arguments& a) {
  const auto b = in.bind(name, a, {"sep", "maxsplit"});
  const std::string* separator = text_or_null(in, b[0]);
  if (separator && separator->empty()) in.fail("empty separator");
  in.charge(t.bytes.size());
  return texts(in, split_text(in, t, separator, b[1] ? in.integer(*b[1], name) : -1, name == "rsplit"));
}

/// The part of a string that start and end name, as bytes; false where the start is behind its end.
struct TextPart {
  bool there = true;
  size_t begin = 0, end = 0, first = 0;  ///< `first`: the number of its first character
};
TextPart part_of(Interpreter& in, const Text& t, const Value* start, const Value* stop, const std::string& name) {
  TextPart p{true, 0, t.bytes.size(), 0};
  const bool from = start && !start->is_none(), to = stop && !stop->is_none();
  if (!from && !to) return p;
  const auto n = static_cast<int64_t>(count_chars(t.bytes));
  const auto place = [&](const Value& v) {
    const int64_t i = in.integer(v, name);
    return i < 0 ? std::max<int64_t>(i + n, 0) : i;
  };
  const int64_t begin = from ? place(*start) : 0, end = to ? std::min(place(*stop), n) : n;
  p.there = begin <= n && begin <= end;
  if (!p.there) return p;
  p.first = static_cast<size_t>(begin);
  p.begin = char_offset(t.bytes, p.first);
  p.end = char_offset(t.bytes, static_cast<size_t>(end));
  return p;
}

Value affix_method(Interpreter& in, const Text& t, const std::string& name, const Arguments& a) {
  const auto b = in.bind(name, a, {"affix", "start", "end"}, 1);
  const TextPart p = part_of(in, t, b[1], b[2], name);
  const std::string_view s = std::string_view(t.bytes).substr(p.begin, p.end - p.begin);
  const auto holds = [&](const Value& v) {
    const std::string& affix = needed_text(in, &v).bytes;
    return p.there && (name == "startswith" ? s.starts_with(affix) : s.ends_with(affix));
  };
  if (b[0]->kind() != Value::Kind::tuple) return Value(holds(*b[0]));
  return Value(std::any_of(b[0]->items().begin(), b[0]->items().end(), holds));
}

Value find_method(Interpreter& in, const Text& t, const std::string& name, const Arguments& a) {
  const auto b = in.bind(name, a, {"sub", "start", "end"}, 1);
  const std::string& what = needed_text(in, b[0]).bytes;
  const TextPart p = part_of(in, t, b[1], b[2], name);
  const std::string_view s = std::string_view(t.bytes).substr(p.begin, p.end - p.begin);
  if (name == "count") {
    if (!p.there) return Value(0);
    if (what.empty()) return Value(static_cast<int64_t>(count_chars(s)) + 1);
    int64_t n = 0;
    for (size_t at = s.find(what); at != std::string::npos; at = s.find(what, at + what.size())) n++;
    return Value(n);
  }
  const size_t at = !p.there ? std::string::npos : name[0] == 'r' ? s.rfind(what) : s.find(what);
  if (at != std::string::npos) return Value(static_cast<int64_t>(p.first + count_chars(s.substr(0, at))));
  if (name.ends_with("index")) in.fail("substring not found");
  return Value(-1);
}

bool is_identifier(const Text& t) {
  size_t length = 1;
  bool all = !t.bytes.empty();
  for (size_t at = 0; at < t.bytes.size(); at += length) {
    const uint32_t c = char_at(t.bytes, at, length);
    all &= c == '_' || is_alpha_char(c) || (at > 0 && is_digit_char(c));
  }
  return all;
}

bool is_title(const Text& t) {
  size_t length = 1;
  bool any = false, inside = false;
  for (size_t at = 0; at < t.bytes.size(); at += length) {
    const uint32_t c = char_at(t.bytes, at, length);
    const bool upper = is_upper_char(c) || is_title_char(c), lower = is_lower_char(c);
    if ((upper && inside) || (lower && !inside)) return false;
    inside = upper || lower;
    any |= inside;
  }
  return any;
}

Value is_method(const Text& t, const std::string& name) {
  bool all = !t.bytes.empty(), cased = false, upper = true, lower = true;
  size_t length = 1;
  for (size_t at = 0; at < t.bytes.size(); at += length) {
    const uint32_t c = char_at(t.bytes, at, length);
    const bool is_upper = is_upper_char(c), is_lower = is_lower_char(c);
    cased |= is_upper || is_lower;
    upper &= !is_lower;
    lower &= !is_upper;
    if (name == "isalpha") all &= is_alpha_char(c);
    else if (name == "isdecimal") all &= is_digit_char(c);
    else if (name == "isdigit") all &= is_digit_char(c) || is_other_digit(c);
    else if (name == "isnumeric") all &= is_numeric_char(c);
    else if (name == "isalnum") all &= is_alpha_char(c) || is_numeric_char(c);
    else if (name == "isspace") all &= is_space_char(c);
    else if (name == "isprintable") all &= is_printable_char(c);
    else if (name == "isascii") all &= c < 0x80;
  }
  if (name == "isidentifier") return Value(is_identifier(t));
  if (name == "istitle") return Value(is_title(t));
  if (name == "isupper") return Value(cased && upper);
  if (name == "islower") return Value(cased && lower);
  if (name == "isprintable" || name == "isascii") return Value(all || t.bytes.empty());
  return Value(all);
}

Value justified(Interpreter& in, const Text& t, const std::string& name, const Arguments& a) {
  const auto b = in.bind(name, a, {"width", "fillchar"}, 1);
  const std::string fill = b[1] ? needed_text(in, b[1]).bytes : name == "zfill" ? "0" : " ";
  if (count_chars(fill) != 1) in.fail("the fill character must be exactly one character long");
  const auto n = static_cast<int64_t>(count_chars(t.bytes));
  const int64_t missing = std::max<int64_t>(in.integer(*b[0], name) - n, 0);
  in.repeat(Value(fill), missing);  // counts the bytes
  const int64_t half = missing / 2 + (missing & (n + missing) & 1);
  const int64_t left = name == "center" ? half : name == "ljust" ? 0 : missing;
  Text out;
  const bool sign = name == "zfill" && !t.bytes.empty() && (t.bytes[0] == '-' || t.bytes[0] == '+');
  if (sign) out.append(t.slice(0, 1));
  for (int64_t i = 0; i < left; i++) out.append(fill);
  out.append(t.slice(sign ? 1 : 0, t.bytes.size()));
  for (int64_t i = left; i < missing; i++) out.append(fill);
  return in.string(std::move(out));
}

Value split_lines(Interpreter& in, const Text& t, const Arguments& a) {
  const auto b = in.bind("splitlines", a, {"keepends"});
  in.charge(t.bytes.size());
  return texts(in, lines_of(in, t, b[0] && in.truth(*b[0])));
}

Value expand_tabs(Interpreter& in, const Text& t, const Arguments& a) {
  const auto b = in.bind("expandtabs", a, {"tabsize"});
  const int64_t size = b[0] ? in.integer(*b[0], "expandtabs") : 8;
  if (size > kMaxTabSize) in.fail("a tab is too wide", TemplateError::Reason::limit);
  Text out;
  int64_t column = 0;
  size_t length = 1;
  for (size_t at = 0; at < t.bytes.size(); at += length) {
    const uint32_t c = char_at(t.bytes, at, length);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      in.charge(static_cast<size_t>(spaces));
      out.append(std::string(static_cast<size_t>(spaces), ' '));
      column += spaces;
      continue;
    }
    out.append(t.slice(at, at + length));
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return in.string(std::move(out));
}

Value partition(Interpreter& in, const Text& t, const std::string& name, const Arguments& a) {
  const auto b = in.bind(name, a, {"sep"}, 1);
  const Text& separator = needed_text(in, b[0]);
  if (separator.bytes.empty()) in.fail("empty separator");
  const bool right = name == "rpartition";
  const size_t at = right ? t.bytes.rfind(separator.bytes) : t.bytes.find(separator.bytes);
  if (at == std::string::npos) {
    const Value empty("");
    return right ? Value::tuple({empty, empty, Value(t)}) : Value::tuple({Value(t), empty, empty});
  }
  return Value::tuple(
      {in.string(t.slice(0, at)), *b[0], in.string(t.slice(at + separator.bytes.size(), t.bytes.size()))});
}

Value case_method(Interpreter& in, const Text& t, const std::string& name) {
  if (name == "upper") return in.string(t.derived(upper_text(t.bytes)));
  if (name == "lower") return in.string(t.derived(lower_text(t.bytes)));
  if (name == "casefold") return in.string(t.derived(casefold_text(t.bytes)));
  if (name == "title") return in.string(t.derived(title_text(t.bytes)));
  if (name == "capitalize") return in.string(t.derived(capitalize_text(t.bytes)));
  std::string out;
  size_t length = 1;
  for (size_t at = 0; at < t.bytes.size(); at += length) {
    const uint32_t code = char_at(t.bytes, at, length);
    const std::string_view c = std::string_view(t.bytes).substr(at, length);
    if (is_title_char(code)) out += c;
    else out += is_upper_char(code) ? lower_text(c) : upper_text(c);
  }
  return in.string(t.derived(std::move(out)));
}

Value join_method(Interpreter& in, const Text& t, const Arguments& a) {
  Text out;
  bool first = true;
  for (const Value& v : in.iterate(*in.bind("join", a, {"iterable"}, 1)[0])) {
    if (!first) out.append(t);
    first = false;
    out.append(needed_text(in, &v));
    in.charge(t.bytes.size() + v.size());
  }
  return in.string(std::move(out));
}

Value text_method(Interpreter& in, const Value& self, const std::string& name, const Arguments& a) {
  const Text& t = self.text();
  in.step(t.bytes.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return in.string(
        strip_text(t, text_or_null(in, in.bind(name, a, {"chars"})[0]), name != "rstrip", name != "lstrip"));
  if (name == "split" || name == "rsplit") return split_method(in, t, name, a);
  if (name == "startswith" || name == "endswith") return affix_method(in, t, name, a);
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count")
    return find_method(in, t, name, a);
  if (name == "join") return join_method(in, t, a);
  if (name == "replace") {
    const auto b = in.bind(name, a, {"old", "new", "count"}, 2);
    const Text &from = needed_text(in, b[0]), &to = needed_text(in, b[1]);
    in.charge((t.bytes.size() + 1) / std::max<size_t>(from.bytes.size(), 1) * to.bytes.size());
    return in.string(replace_text(t, from, to, b[2] ? in.integer(*b[2], name) : -1));
  }
  if (name == "center" || name == "ljust" || name == "rjust" || name == "zfill") return justified(in, t, name, a);
  if (name == "splitlines") return split_lines(in, t, a);
  if (name == "partition" || name == "rpartition") return partition(in, t, name, a);
  if (name == "format") return in.string(brace_format(in, t, a));
  if (name == "format_map") {
    const Value& map = *in.bind(name, a, {"map"}, 1)[0];
    if (!map.is_dict()) in.fail("format_map takes a dictionary");
    Arguments named;
    for (const auto& [key, value] : map.entries())
      if (key.is_string()) named.named.emplace_back(key.as_string(), value);
    return in.string(brace_format(in, t, named));
  }
  if (name == "expandtabs") return expand_tabs(in, t, a);
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& affix = needed_text(in, in.bind(name, a, {"affix"}, 1)[0]).bytes;
    const bool prefix = name == "removeprefix";
    const bool there = prefix ? t.bytes.starts_with(affix) : t.bytes.ends_with(affix);
    if (!there) return self;
    return in.string(prefix ? t.slice(affix.size(), t.bytes.size()) : t.slice(0, t.bytes.size() - affix.size()));
  }
  static const Names kCases = {"upper", "lower", "casefold", "title", "capitalize", "swapcase"};
  static const Names kTests = {"isalpha", "isdigit",     "isdecimal", "isnumeric",    "isalnum", "isspace",
                               "isascii", "isprintable", "isupper",   "isidentifier", "islower", "istitle"};
  if (!kCases.contains(name) && !kTests.contains(name))
    in.fail(str("the method ", python_repr(name), " of strings is not supported"));
  in.bind(name, a, {});
  return kCases.contains(name) ? case_method(in, t, name) : is_method(t, name);
}

Value dict_method(Interpreter& in, const Value& self, const std::string& name, const Arguments& a) {
  if (name == "get") {
    const auto b = in.bind("get", a, {"key", "default"}, 1);
    if (!Interpreter::is_hashable(*b[0])) in.fail(str(kind_name(b[0]->kind()), " cannot be a key"));
    in.step(b[0]->is_string() ? 0 : self.size() * 64);
    const Value* found = self.find_key(*b[0]);
    return found ? *found : b[1] ? *b[1] : Value();
  }
  in.bind(name, a, {});
  if (name == "copy") return self;
  std::vector<Value> out;
  in.charge(self.size() * 4 * sizeof(Value));
  for (const auto& [key, value] : self.entries())
    out.push_back(name == "items" ? Value::tuple({key, value}) : name == "keys" ? key : value);
  if (name == "fromkeys") in.fail("the method 'fromkeys' is not supported");
  return in.view(std::move(out), "dict_" + name);
}

Value list_method(Interpreter& in, const Value& self, const std::string& name, const Arguments& a) {
  if (name == "copy") return self;
  const auto b = in.bind(name, a, {"value"}, 1);
  int64_t n = 0, at = 0;
  for (const Value& v : self.items()) {
    const bool same = in.equal(v, *b[0]);
    if (same && name == "index") return Value(at);
    n += same;
    at++;
  }
  if (name == "index") in.fail("the value is not in the list");
  return Value(n);
}

Value range(Interpreter& in, const Arguments& a) {
  const auto b = in.bind("range", a, {"start", "stop", "step"}, 1);
  const int64_t first = in.integer(*b[0], "range");
  const int64_t start = b[1] ? first : 0, stop = b[1] ? in.integer(*b[1], "range") : first;
  const int64_t step = b[2] ? in.integer(*b[2], "range") : 1;
  if (step == 0) in.fail("range has the step 0");
  std::vector<Value> out;
  const bool up = step > 0;
  for (int64_t i = start; up ? i < stop : i > stop;) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange)
      in.fail(str("range is longer than ", kMaxRange), TemplateError::Reason::limit);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const std::string by = step == 1 ? ")" : str(", ", step, ")");
  return in.view(std::move(out), str("range(", start, ", ", stop, by));
}

}  // namespace

void Interpreter::repeat(const Value& v, int64_t times) { arithmetic(Operator::mul, v, Value(times)); }

Value Interpreter::method(const Value& self, const std::string& name, const Arguments& a) {
  if (self.is_string()) return text_method(*this, self, name, a);
  return self.is_dict() ? dict_method(*this, self, name, a) : list_method(*this, self, name, a);
}

Value Interpreter::function(const std::string& name, const Arguments& a) {
  if (name == "range") return range(*this, a);
  if (name == "raise_exception") {
    const auto b = bind(name, a, {"message"}, 1);
    fail(print(*b[0]).bytes, TemplateError::Reason::raised);
  }
  if (name == "namespace" || name == "dict") {
    std::vector<Value::Entry> entries;
    const Arguments unnamed{a.positional, {}};
    const auto b = bind(name, unnamed, {"mapping"});
    if (b[0] && b[0]->is_dict()) entries.assign(b[0]->entries().begin(), b[0]->entries().end());
    else if (b[0]) {
      for (const Value& pair : iterate(*b[0])) {
        const std::vector<Value> both = iterate(pair);
        if (both.size() != 2) fail(str(name, " takes a dictionary or a list of pairs"));
        entries.emplace_back(both[0], both[1]);
      }
    }
    for (const auto& [key, value] : a.named) entries.emplace_back(Value(Text::of_template(key)), value);
    const Value all = Value::dict(std::move(entries));
    charge(all.size() * sizeof(Value::Entry));
    if (name == "dict") return all;
    std::vector<std::pair<std::string, Value>> attributes;
    for (const auto& [key, value] : all.entries()) attributes.emplace_back(print(key).bytes, value);
    return space(std::move(attributes));
  }
  if (name == "strftime_now") {
    const auto b = bind(name, a, {"format"}, 1);
    if (!b[0]->is_string() || b[0]->size() > 200) fail("strftime_now takes a short string");
    const auto now = static_cast<std::time_t>(unix_seconds_ ? *unix_seconds_ : std::time(nullptr));
    std::tm parts{};
    if (unix_seconds_) gmtime_r(&now, &parts);
    else localtime_r(&now, &parts);
    char text[2000];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t n = std::strftime(text, sizeof text, b[0]->as_string().c_str(), &parts);
#pragma GCC diagnostic pop
    return string(Text::of_template(std::string(text, n)));
  }
  fail(str("the function ", python_repr(name), " is not supported"));
}

}  // namespace tg::llm::jinja
