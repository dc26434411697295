/// \file Values without a fixed type.
#include "tinygrad/llm/value.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/template/marked_text.h"
#include "tinygrad/llm/value_parts.h"

namespace tg::llm {
namespace {

int deepest(std::span<const Value> items) {
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, v.depth());
  TG_CHECK(ValueError, depth < kMaxValueDepth, "[value] got lists nested more than ", kMaxValueDepth, " deep");
  return depth + 1;
}

bool is_key(const Value& v) {
  const bool number = v.is_bool() || v.is_number();
  return v.is_string() || number || v.is_none();
}

bool is_nan(const Value& v) { return v.is_real() && v.as_double() != v.as_double(); }

/// Returns a text that keys which are no strings have in common exactly when they are equal: 1, 1.0 and True are.
std::string key_text(const Value& v) {
  if (v.is_none()) return "none";
  if (!v.is_real()) return std::to_string(v.as_integer());
  const double d = v.as_double();
  const bool whole = d >= -9223372036854775808.0 && d < 9223372036854775808.0 && d == std::floor(d);
  return whole ? std::to_string(static_cast<int64_t>(d)) : "real " + python_real(d);
}

[[noreturn]] void wrong_kind(const Value& v, std::string_view expected) {
  throw ValueError(str("[value] got ", kind_name(v.kind()), ", expected ", expected));
}

}  // namespace

JsonStyle compact_json() {
  JsonStyle s;
  s.item = ",";
  s.key = ":";
  return s;
}

Value::Value(std::string v) : Value(Text{std::move(v), {}, false}) {}
Value::Value(Text v) : kind_(Kind::string), data_(std::make_shared<const Text>(std::move(v))) {}

Value Value::from_sequence(Sequence s, Kind kind) {
  Value v;
  s.depth = deepest(s.items);
  v.kind_ = kind;
  v.data_ = std::make_shared<const Sequence>(std::move(s));
  return v;
}

Value Value::list(std::vector<Value> items) {
  Sequence s;
  s.items = std::move(items);
  return from_sequence(std::move(s), Kind::list);
}

Value Value::tuple(std::vector<Value> items) {
  Sequence s;
  s.items = std::move(items);
  return from_sequence(std::move(s), Kind::tuple);
}

Value Value::dict(std::vector<Entry> entries) {
  Mapping m;
  std::unordered_map<std::string, size_t> seen, others;  // strings, and what else is a key
  int depth = 0;
  for (auto& [key, value] : entries) {
    TG_CHECK(ValueError, is_key(key), "[value] got ", kind_name(key.kind()), " as a key, expected a string or number");
    depth = std::max(depth, value.depth());
    size_t at = m.entries.size();
    if (key.is_string()) at = seen.emplace(key.as_string(), at).first->second;
    else if (!is_nan(key)) at = others.emplace(key_text(key), at).first->second;
    if (at == m.entries.size()) m.entries.emplace_back(std::move(key), std::move(value));
    else m.entries[at].second = std::move(value);
  }
  TG_CHECK(ValueError, depth < kMaxValueDepth, "[value] got dictionaries nested more than ", kMaxValueDepth, " deep");
  m.depth = depth + 1;
  if (m.entries.size() > Mapping::kIndexedEntries) m.index = std::move(seen);
  Value v;
  v.kind_ = Kind::dict;
  v.data_ = std::make_shared<const Mapping>(std::move(m));
  return v;
}

Value Value::undefined(std::string looked_for) {
  Value v(std::move(looked_for));
  v.kind_ = Kind::undefined;
  return v;
}

Value Value::from_callable(Callable c) {
  Value v;
  v.kind_ = Kind::callable;
  v.data_ = std::make_shared<const Callable>(std::move(c));
  return v;
}

Value Value::from_space(int64_t id) {
  Value v(id);
  v.kind_ = Kind::space;
  return v;
}

int Value::depth() const {
  if (kind_ == Kind::dict) return std::get<std::shared_ptr<const Mapping>>(data_)->depth;
  if (kind_ == Kind::callable) return callable().self.depth() + 1;
  return kind_ == Kind::list || kind_ == Kind::tuple || kind_ == Kind::view ? sequence().depth : 0;
}

bool Value::as_bool() const {
  if (!is_bool()) wrong_kind(*this, "a boolean");
  return std::get<bool>(data_);
}

int64_t Value::as_integer() const {
  if (is_bool()) return as_bool() ? 1 : 0;
  if (!is_integer()) wrong_kind(*this, "an integer");
  return std::get<int64_t>(data_);
}

double Value::as_double() const {
  if (is_real()) return std::get<double>(data_);
  if (!is_integer() && !is_bool()) wrong_kind(*this, "a number");
  return static_cast<double>(as_integer());
}

const std::string& Value::as_string() const {
  if (!is_string()) wrong_kind(*this, "a string");
  return text().bytes;
}

const Text& Value::text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
const Sequence& Value::sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
const Callable& Value::callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
const std::string& Value::looked_for() const { return text().bytes; }

std::span<const Value> Value::items() const {
  if (kind_ != Kind::list && kind_ != Kind::tuple && kind_ != Kind::view) wrong_kind(*this, "a list");
  return sequence().items;
}

std::span<const Value::Entry> Value::entries() const {
  if (kind_ != Kind::dict) wrong_kind(*this, "a dictionary");
  return std::get<std::shared_ptr<const Mapping>>(data_)->entries;
}

const Value* Value::find(std::string_view key) const {
  if (kind_ != Kind::dict) return nullptr;
  const Mapping& m = *std::get<std::shared_ptr<const Mapping>>(data_);
  if (!m.index.empty()) {
    const auto found = m.index.find(std::string(key));
    return found == m.index.end() ? nullptr : &m.entries[found->second].second;
  }
  for (const auto& [k, v] : m.entries)
    if (k.is_string() && k.as_string() == key) return &v;
  return nullptr;
}

const Value* Value::find_key(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.as_string()));
  if (kind_ != Kind::dict || !is_key(key)) return nullptr;
  for (const auto& [k, v] : entries())
    if (k == key) return &v;
  return nullptr;
}

size_t Value::size() const {
  switch (kind_) {
    case Kind::string: return text().bytes.size();
    case Kind::list:
    case Kind::tuple:
    case Kind::view: return items().size();
    case Kind::dict: return entries().size();
    default: return 0;
  }
}

namespace {

bool equal_numbers(const Value& a, const Value& b) {
  if (!a.is_real() && !b.is_real()) return a.as_integer() == b.as_integer();
  if (a.is_real() && b.is_real()) return a.as_double() == b.as_double();
  const double real = a.is_real() ? a.as_double() : b.as_double();
  const int64_t whole = a.is_real() ? b.as_integer() : a.as_integer();
  if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0)) return false;
  return real == static_cast<double>(static_cast<int64_t>(real)) && static_cast<int64_t>(real) == whole;
}

}  // namespace

bool Value::equals(const Value& other, int64_t& budget) const {
  TG_CHECK(ValueError, --budget > 0, "[value] two values are too large to compare");
  const auto number = [](const Value& v) { return v.is_bool() || v.is_number(); };
  if (number(*this) && number(other)) return equal_numbers(*this, other);
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: budget -= static_cast<int64_t>(as_string().size() / 64); return as_string() == other.as_string();
    case Kind::space: return space_id() == other.space_id();
    case Kind::callable: return &callable() == &other.callable();
    case Kind::view:
      if (&sequence() == &other.sequence()) return true;
      if (sequence().lazy) return false;
      [[fallthrough]];
    case Kind::list:
    case Kind::tuple: {
      const auto a = items(), b = other.items();
      if (a.size() != b.size()) return false;
      for (size_t i = 0; i < a.size(); i++)
        if (!a[i].equals(b[i], budget)) return false;
      return true;
    }
    default: break;
  }
  if (size() != other.size()) return false;
  for (const auto& [key, value] : entries()) {
    budget--;
    const Value* there = other.find_key(key);
    if (!there || !value.equals(*there, budget)) return false;
  }
  return true;
}

bool Value::operator==(const Value& other) const {
  int64_t budget = 100'000'000;
  return equals(other, budget);
}

std::string_view kind_name(Value::Kind kind) {
  constexpr std::string_view kNames[] = {"undefined", "none",  "boolean", "integer", "float",    "string",
                                         "list",      "tuple", "view",    "dict",    "function", "namespace"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace tg::llm
