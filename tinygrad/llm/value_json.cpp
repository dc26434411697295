/// \file Values from and to JSON.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/template/marked_text.h"
#include "tinygrad/llm/value.h"

namespace tg::llm {
namespace {

using Json = nlohmann::json;

/// Builds a Value from the events of a parser that needs no stack of calls.
class Builder : public Json::json_sax_t {
 public:
  Builder(std::string_view name, const JsonLimits& limits) : name_(name), limits_(limits) {}

  bool null() override { return add(Value()); }
  bool boolean(bool v) override { return add(Value(v)); }
  bool number_integer(number_integer_t v) override { return add(Value(int64_t{v})); }
  bool number_unsigned(number_unsigned_t v) override {
    return add(v <= INT64_MAX ? Value(static_cast<int64_t>(v)) : Value(static_cast<double>(v)));
  }
  bool number_float(number_float_t v, const string_t&) override { return add(Value(v)); }
  bool string(string_t& v) override { return add(Value(std::move(v))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    count();
    Level& top = open_.back();
    TG_CHECK(FormatError, top.keys.emplace(v, 0).second, "[json] ", name_, ": the key ", python_repr(v),
             " stands twice in one object");
    top.key = std::move(v);
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const Json::exception& e) override {
    throw FormatError(str("[json] ", name_, ": no JSON at byte ", at, ": ", e.what()));
  }
  Value take() { return std::move(root_); }

 private:
  struct Level {
    bool object;
    std::vector<Value> items;
    std::vector<Value::Entry> entries;
    std::unordered_map<std::string, int> keys;
    std::string key;
  };
  void count() {
    TG_CHECK(FormatError, ++values_ <= limits_.values, "[json] ", name_, ": more than ", limits_.values, " values");
  }
  bool open(bool object) {
    count();
    TG_CHECK(FormatError, static_cast<int>(open_.size()) < std::min(limits_.depth, kMaxValueDepth - 1), "[json] ",
             name_, ": nested more than ", limits_.depth, " deep");
    open_.push_back({object, {}, {}, {}, {}});
    return true;
  }
  bool close() {
    Level top = std::move(open_.back());
    open_.pop_back();
    return put(top.object ? Value::dict(std::move(top.entries)) : Value::list(std::move(top.items)));
  }
  bool add(Value v) {
    count();
    return put(std::move(v));
  }
  bool put(Value v) {
    if (open_.empty()) root_ = std::move(v);
    else if (open_.back().object) open_.back().entries.emplace_back(std::move(open_.back().key), std::move(v));
    else open_.back().items.push_back(std::move(v));
    return true;
  }

  std::string_view name_;
  JsonLimits limits_;
  size_t values_ = 0;
  std::vector<Level> open_;
  Value root_;
};

/// Writes JSON as Python's json.dumps does.
class Writer {
 public:
  Writer(const JsonStyle& style, size_t max_bytes) : style_(style), max_(max_bytes) {}

  void value(const Value& v, int level) {
    TG_CHECK(ValueError, out.size() <= max_, "[json] the text is longer than ", max_, " bytes");
    switch (v.kind()) {
      case Value::Kind::none: out += "null"; return;
      case Value::Kind::boolean: out += v.as_bool() ? "true" : "false"; return;
      case Value::Kind::integer: out += std::to_string(v.as_integer()); return;
      case Value::Kind::real: out += real(v.as_double()); return;
      case Value::Kind::string: string(v.as_string()); return;
      case Value::Kind::list:
      case Value::Kind::tuple: list(v, level); return;
      case Value::Kind::dict: dict(v, level); return;
      default: throw ValueError(str("[json] got ", kind_name(v.kind()), ", which JSON has not"));
    }
  }
  std::string out;

 private:
  static std::string real(double v) {
    if (std::isnan(v)) return "NaN";
    if (std::isinf(v)) return v < 0 ? "-Infinity" : "Infinity";
    return python_real(v);
  }
  void separate(bool first, int level) {
    if (!first) out += style_.indent >= 0 && style_.item == ", " ? "," : style_.item;
    if (style_.indent >= 0) line(level);
  }
  void line(int level) {
    out += '\n';
    out.append(static_cast<size_t>(level) * static_cast<size_t>(style_.indent), ' ');
  }
  void list(const Value& v, int level) {
    out += '[';
    bool first = true;
    for (const Value& i : v.items()) {
      separate(first, level + 1);
      value(i, level + 1);
      first = false;
    }
    if (!first && style_.indent >= 0) line(level);
    out += ']';
  }
  void dict(const Value& v, int level) {
    out += '{';
    std::vector<const Value::Entry*> entries;
    for (const Value::Entry& e : v.entries()) entries.push_back(&e);
    if (style_.sort_keys) {
      for (const Value::Entry* e : entries)
        TG_CHECK(ValueError, e->first.is_string(), "[json] keys that are no strings cannot be sorted");
      std::stable_sort(entries.begin(), entries.end(),
                       [](auto* a, auto* b) { return a->first.as_string() < b->first.as_string(); });
    }
    bool first = true;
    for (const Value::Entry* e : entries) {
      separate(first, level + 1);
      key(e->first);
      out += style_.key;
      value(e->second, level + 1);
      first = false;
    }
    if (!first && style_.indent >= 0) line(level);
    out += '}';
  }
  void key(const Value& k) {
    if (k.is_string()) return string(k.as_string());
    out += '"';
    value(k, 0);
    out += '"';
  }
  void unit(uint32_t c) {
    out += "\\u";
    for (int i = 3; i >= 0; i--) out += "0123456789abcdef"[c >> (4 * i) & 15];
  }
  void string(std::string_view s) {
    TG_CHECK(ValueError, s.size() <= max_, "[json] the text is longer than ", max_, " bytes");
    out += '"';
    size_t length = 1;
    for (size_t at = 0; at < s.size(); at += length) {
      const uint32_t c = char_at(s, at, length);
      constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
      const size_t known = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
      if (known != std::string_view::npos) (out += '\\') += "\"\\bfnrt"[known];
      else if (c < 0x20) unit(c);
      else if (c == 0xFFFD && length == 1) out += "\xEF\xBF\xBD";  // a byte that is no UTF-8
      else if (c < 0x7F || !style_.ascii) out += s.substr(at, length);
      else if (c < 0x10000) unit(c);
      else {
        unit(0xD800 + ((c - 0x10000) >> 10));
        unit(0xDC00 + ((c - 0x10000) & 0x3FF));
      }
    }
    out += '"';
  }

  const JsonStyle& style_;
  size_t max_;
};

}  // namespace

Value Value::parse_json(std::string_view text, std::string_view name, const JsonLimits& limits) {
  TG_CHECK(FormatError, text.size() <= limits.bytes, "[json] ", name, ": got ", text.size(), " bytes, at most ",
           limits.bytes);
  Builder b(name, limits);
  Json::sax_parse(text.begin(), text.end(), &b);
  return b.take();
}

std::string Value::json(const JsonStyle& style, size_t max_bytes) const {
  Writer w(style, max_bytes);
  w.value(*this, 0);
  TG_CHECK(ValueError, w.out.size() <= max_bytes, "[json] the text is longer than ", max_bytes, " bytes");
  return std::move(w.out);
}

}  // namespace tg::llm
