/// \file Runs a parsed template. Everything it can reach is in the values it was given; every step, byte and level
/// counts
/// against TemplateLimits.
#pragma once
#include <deque>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/llm/template/marked_text.h"
#include "tinygrad/llm/template/template_ast.h"
#include "tinygrad/llm/value_parts.h"

namespace tg::llm::jinja {

/// Label of the tuples that groupby gives; their parts have names.
inline constexpr char kGroupLabel[] = "group";

/// Deepest nesting of what runs at one time: it bounds the stack.
inline constexpr int kMaxRunningLevels = 600;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateLimits& limits, std::optional<int64_t> unix_seconds);
  void define(const std::string& name, Value v);
  RenderedChat run();

  // ---- for filters, tests, methods and functions ----

  [[noreturn]] void fail(const std::string& what, TemplateError::Reason reason = TemplateError::Reason::runtime) const;
  /// Counts one step, or as many as this many bytes are worth.
  void step(size_t bytes = 0);
  /// Counts bytes that a value takes.
  void charge(size_t bytes);
  Value string(Text t);
  Value list(std::vector<Value> items);
  Value view(std::vector<Value> items, std::string label);
  Value generator(std::vector<Value> items);
  /// Places arguments on parameters; fails for too many and for unknown names. Absent ones are nullptr.
  std::vector<const Value*> bind(std::string_view what, const Arguments& a,
                                 std::initializer_list<std::string_view> parameters, size_t required = 0) const;
  int64_t integer(const Value& v, std::string_view what) const;
  /// Returns whether Python can take a value as a key.
  static bool is_hashable(const Value& v);
  /// Returns what iterating gives; a generator is used up.
  std::vector<Value> iterate(const Value& v);
  bool truth(const Value& v) const;
  bool equal(const Value& a, const Value& b);
  bool less(const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);
  /// Returns the text `{{ v }}` prints.
  Text print(const Value& v);
  /// Returns how Python shows a value inside of a list.
  void show(const Value& v, Text& out);
  Value attribute(const Value& v, const std::string& name);
  Value item(const Value& v, const Value& key);
  Value slice(const Value& v, const Value& start, const Value& stop, const Value& step);
  Value arithmetic(Operator op, const Value& a, const Value& b);
  Value filter(const std::string& name, const Value& v, const Arguments& a);
  bool test(const std::string& name, const Value& v, const Arguments& a);
  Value call(const Value& f, const Arguments& a);
  Value method(const Value& self, const std::string& name, const Arguments& a);
  Value function(const std::string& name, const Arguments& a);
  /// Formats as Python's % does, with one value, a tuple or a dictionary.
  Value percent_format(const Text& format, const Value& arguments);
  Value undefined(const Value& of, const std::string& name) const;
  Value space(std::vector<std::pair<std::string, Value>> attributes);
  /// Returns whether a value is the variable `loop` of a loop.
  bool is_loop(const Value& v) const;
  const TemplateLimits& limits() const { return limits_; }
  /// Counts the bytes of a text this many times over.
  void repeat(const Value& v, int64_t times);

 private:
  struct Scope {
    int64_t parent = -1;
    bool kept = false;  ///< a macro was defined in it
    std::vector<std::pair<int, Value>> names;
  };
  /// One level of expressions, statements and macros inside of each other while it lives.
  struct Level {
    explicit Level(Interpreter& in);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { in.levels_--; }
    Interpreter& in;
  };
  /// Where an inner block writes instead of the output.
  struct Capture;
  enum class Flow : uint8_t { next, stop_loop, next_turn };
  /// What namespaces and the variables `loop` hold.
  struct Space {
    std::vector<std::pair<std::string, Value>> attributes;
    const Stmt* loop = nullptr;                 ///< of `loop`: the statement; none once it has ended
    int64_t scope = 0;                          ///< where the loop stands
    int64_t depth = 0;                          ///< calls of `loop` that the loop is inside of
    const std::vector<Value>* items = nullptr;  ///< what the loop goes over
    int64_t turn = 0;
    std::optional<Value> changed;  ///< what `loop.changed` was last given
  };

  Flow run_body(const Body& body);
  Flow run_statement(const Stmt& s);
  Flow run_loop(const Stmt& s, std::vector<Value> items, int64_t depth);
  Value loop_attribute(const Value& v, const std::string& name);
  Flow run_branch(const Stmt& s);
  Flow run_set_block(const Stmt& s);
  void run_macro_definition(const Stmt& s);
  void run_call_block(const Stmt& s);
  Flow run_filter_block(const Stmt& s);
  Flow run_with(const Stmt& s);
  void run_generation(const Stmt& s);
  Text captured(const Body& body, Flow& flow);
  void assign(const Target& t, const Value& v);
  void write(const Text& t);

  Value eval(const Expr& e);
  Value eval_chain(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_choose(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_postfix(const Expr& e);
  Value apply(const Value& v, const Postfix& p);
  Value negated(const Value& v, const std::string& signs);
  Value lookup(int name);
  Arguments arguments(const CallArguments& a);
  Value filtered(Value v, const std::vector<Postfix>& filters);
  Value call_macro(const Callable& c, const Arguments& a);
  Value loop_method(const std::string& name, const Value& loop, const Arguments& a);
  Value call_loop(const Value& loop, const Arguments& a);
  void show_space(const Value& v, Text& out);
  void set_local(int name, Value v);
  int64_t push_scope(int64_t parent);
  void pop_scope();

  const Program& program_;
  TemplateLimits limits_;
  std::optional<int64_t> unix_seconds_;
  int line_ = 1, calls_ = 0, levels_ = 0;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  std::deque<Scope> scopes_;
  std::vector<int64_t> stack_;  // scopes that are open, the innermost last
  std::deque<Space> spaces_;
  Text* out_ = nullptr;
  RenderedChat result_;
};

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);
/// Returns the filter of this name; nullptr where there is none.
Filter find_filter(const std::string& name);
/// Returns one of the filters that go over sequences; nullptr where there is none.
Filter find_sequence_filter(const std::string& name);
/// Returns the attribute `path` ("a.b.0") of a value, as map and sort take it; `absent` stands for each part that is
/// missing, where it is given.
Value attribute_path(Interpreter& in, const Value& v, const Value& path, const Value* absent = nullptr);

/// Returns whether Python's type of this value has a method of this name, and whether it changes the value.
enum class MethodKind : uint8_t { none, known, changes };
MethodKind method_kind(const Value& v, const std::string& name);

/// Returns the words of a text, or its parts between `separator`; at most `most` cuts where it is not negative.
std::vector<Text> split_text(Interpreter& in, const Text& t, const std::string* separator, int64_t most,
                             bool from_right);
Text strip_text(const Text& t, const std::string* characters, bool left, bool right);
Text replace_text(const Text& t, const Text& from, const Text& to, int64_t most);

/// Splits a text as Python's str.splitlines does.
std::vector<Text> lines_of(Interpreter& in, const Text& t, bool keep_ends);

/// Formats as Python's str.format does: {}, {0}, {name}, {a.b[c]}, {!r}, {:>8.3f}.
Text brace_format(Interpreter& in, const Text& format, const Arguments& a);

/// Reads a number as Python's int(text, base) and float(text) do; nothing where they raise ValueError.
std::optional<Value> read_integer(Interpreter& in, const Text& text, int64_t base);
std::optional<double> read_real(const Text& text);

}  // namespace tg::llm::jinja
