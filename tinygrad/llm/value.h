/// \file Values without a fixed type, as chat templates compute with them and as JSON carries them: none, booleans,
/// integers, reals, strings, lists, tuples and dictionaries that keep their order. Values never change once made, so a
/// copy is a pointer, and they nest at most kMaxValueDepth deep, so every walk over one is bounded.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tg::llm {

/// Deepest nesting of lists and dictionaries in a Value.
inline constexpr int kMaxValueDepth = 128;

/// What a JSON text may cost before it is refused.
struct JsonLimits {
  size_t bytes = size_t{64} << 20;  ///< length of the text
  size_t values = 4'000'000;        ///< number of values in it, keys included
  int depth = 100;                  ///< nesting of arrays and objects, at most kMaxValueDepth
};

/// How a JSON text is written. The default is Python's: `{"a": 1, "b": [1, 2]}`.
struct JsonStyle {
  int indent = -1;          ///< spaces of each level; -1: one line
  std::string item = ", ";  ///< between items; "," where indent >= 0
  std::string key = ": ";   ///< between key and value
  bool ascii = false;       ///< writes characters above U+007F as \uXXXX
  bool sort_keys = false;   ///< orders the keys of every object
};
/// Returns the style without any space: `{"a":1,"b":[1,2]}`.
JsonStyle compact_json();

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct Text;      // a string and which parts of it are a template's (tinygrad/llm/template/marked_text.h)
struct Sequence;  // items of lists, tuples and views
struct Mapping;   // entries of dictionaries
struct Callable;  // macros, methods and functions of a running template

class Value {
 public:
  enum class Kind : uint8_t {
    undefined,  ///< a name that stands for nothing, with what was looked for
    none,
    boolean,
    integer,
    real,
    string,
    list,
    tuple,
    view,  ///< what ranges, dictionaries and lazy filters give; exists inside of a running template only
    dict,
    callable,  ///< inside of a running template only
    space      ///< a namespace; inside of a running template only
  };
  using Entry = std::pair<Value, Value>;

  Value() = default;  ///< none
  Value(std::nullptr_t) {}
  Value(bool v) : kind_(Kind::boolean), data_(v) {}
  Value(int v) : kind_(Kind::integer), data_(int64_t{v}) {}
  Value(int64_t v) : kind_(Kind::integer), data_(v) {}
  Value(double v) : kind_(Kind::real), data_(v) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(std::string v);
  Value(Text v);

  /// Returns a list. ValueError where it would nest deeper than kMaxValueDepth.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  /// Returns a dictionary; the last of entries with equal keys counts, at the place of the first. Keys are none,
  /// booleans, numbers or strings, ValueError for others.
  static Value dict(std::vector<Entry> entries);
  static Value undefined(std::string looked_for = {});

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_bool() const { return kind_ == Kind::boolean; }
  bool is_integer() const { return kind_ == Kind::integer; }
  bool is_real() const { return kind_ == Kind::real; }
  bool is_number() const { return is_integer() || is_real(); }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_list() const { return kind_ == Kind::list; }
  bool is_dict() const { return kind_ == Kind::dict; }

  /// Return what the value holds; ValueError for another kind. as_double takes integers too.
  bool as_bool() const;
  int64_t as_integer() const;
  double as_double() const;
  const std::string& as_string() const;
  /// Returns the items of a list, tuple or view; ValueError for another kind.
  std::span<const Value> items() const;
  /// Returns the entries of a dictionary in their order; ValueError for another kind.
  std::span<const Entry> entries() const;
  /// Returns the value of a key of a dictionary; nullptr where there is none, or where this is no dictionary.
  const Value* find(std::string_view key) const;
  const Value* find_key(const Value& key) const;
  /// Returns the number of items, entries or bytes; 0 for what has none.
  size_t size() const;

  /// Compares as Python does: 1 == 1.0 == True, dictionaries without their order. `budget` counts down for every value
  /// looked at; ValueError when it is used up (values may share parts, so that a walk can take very long).
  bool equals(const Value& other, int64_t& budget) const;
  bool operator==(const Value& other) const;

  /// Parses JSON: FormatError that names `name` and the offset for what is no JSON, is no UTF-8, passes a limit or has
  /// a key twice in one object. Integers outside of 64 bits become reals. Source: RFC 8259.
  static Value parse_json(std::string_view text, std::string_view name = "json", const JsonLimits& limits = {});
  /// Returns the value as JSON. ValueError for a kind JSON lacks and for a text above `max_bytes`.
  std::string json(const JsonStyle& style = {}, size_t max_bytes = size_t{1} << 30) const;

  /// Access for the template interpreter.
  const Text& text() const;
  const Sequence& sequence() const;
  const Callable& callable() const;
  int64_t space_id() const { return std::get<int64_t>(data_); }
  const std::string& looked_for() const;
  static Value from_sequence(Sequence s, Kind kind);
  static Value from_callable(Callable c);
  static Value from_space(int64_t id);
  int depth() const;

 private:
  Kind kind_ = Kind::none;
  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Mapping>, std::shared_ptr<const Callable>>
      data_;
};

/// Returns a kind's name as messages show it: "string", "dict", ...
std::string_view kind_name(Value::Kind kind);

}  // namespace tg::llm
