/// \file The grammar of tensor expressions: Python's operators and precedence, calls, indices.
#include "apps/tg/expression.h"

#include <cctype>
#include <charconv>

#include "apps/tg/usage_error.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"

namespace tg::app {
namespace {

using Value = ExpressionValue;
constexpr int kDeepest = 200;  // parentheses, calls and powers inside each other

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Tensor program() {
    Value last;
    while (true) {
      last = statement();
      skip_spaces();
      if (at_ == text_.size()) break;
      expect(";");
      skip_spaces();
      if (at_ == text_.size()) break;
    }
    return tensor_of(last);
  }

 private:
  // ---- text ----
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) at_++;
  }
  bool next_is(std::string_view token) {
    skip_spaces();
    return text_.substr(at_).starts_with(token);
  }
  bool take(std::string_view token) {
    if (!next_is(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(str("'", token, "'"));
  }
  [[noreturn]] void fail(const std::string& expected) {
    skip_spaces();
    const std::string rest(text_.substr(at_, 20));
    throw UsageError(str("[expression] got ", rest.empty() ? "the end" : "'" + rest + "'", " at character ", at_ + 1,
                         ", expected ", expected));
  }
  std::string take_name() {
    skip_spaces();
    const size_t from = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) at_++;
    if (from == at_ || std::isdigit(static_cast<unsigned char>(text_[from]))) {
      at_ = from;
      return {};
    }
    return std::string(text_.substr(from, at_ - from));
  }

  // ---- grammar, a function a level ----
  Value statement() {
    const size_t from = at_;
    const std::string name = take_name();
    if (!name.empty() && next_is("=") && !next_is("==")) {
      expect("=");
      return variables_[name] = expression();
    }
    at_ = from;
    return expression();
  }

  Value expression() {
    if (++depth_ > kDeepest) fail("fewer parentheses inside each other");
    Value v = comparison();
    depth_--;
    return v;
  }

  struct Operator {
    const char* token;
    Tensor (Tensor::*apply)(const Tensor&) const;
  };

  Value comparison() {
    static constexpr Operator kOperators[] = {{"<=", &Tensor::le}, {">=", &Tensor::ge}, {"==", &Tensor::eq},
                                              {"!=", &Tensor::ne}, {"<", &Tensor::lt},  {">", &Tensor::gt}};
    return binary(kOperators, [this] { return sum(); });
  }
  Value sum() {
    static constexpr Operator kOperators[] = {{"+", &Tensor::add}, {"-", &Tensor::sub}};
    return binary(kOperators, [this] { return product(); });
  }
  Value product() {
    static constexpr Operator kOperators[] = {
        {"//", &Tensor::floor_div}, {"*", &Tensor::mul}, {"/", &Tensor::div}, {"%", &Tensor::mod}, {"@", nullptr}};
    return binary(kOperators, [this] { return sign(); });
  }
  template <size_t n, class Next> Value binary(const Operator (&operators)[n], Next next) {
    Value left = next();
    for (size_t i = 0; i < n; i++) {
      if (!take(operators[i].token)) continue;
      const Tensor a = tensor_of(left), b = tensor_of(next());
      left = {operators[i].apply ? (a.*operators[i].apply)(b) : a.matmul(b)};
      i = static_cast<size_t>(-1);  // look for another one from the first on
    }
    return left;
  }
  Value sign() {
    bool minus = false;
    while (take("-")) minus = !minus;
    Value v = power();
    if (!minus) return v;
    if (const auto* s = std::get_if<Scalar>(&v.what)) return {negated(*s)};
    return {tensor_of(v).neg()};
  }
  static Scalar negated(const Scalar& s) {
    return s.dtype.is_float() ? Scalar(-s.value.as_double()) : Scalar(-static_cast<int64_t>(s.value.i));
  }
  Value power() {
    if (++depth_ > kDeepest) fail("fewer powers of powers");
    Value v = postfix();
    if (take("**")) v = {tensor_of(v).pow(tensor_of(sign()))};
    depth_--;
    return v;
  }

  Value postfix() {
    Value v = atom();
    while (true) {
      skip_spaces();
      if (take(".")) v = {member(tensor_of(v))};
      else if (take("[")) v = {indexed(tensor_of(v))};
      else return v;
    }
  }
  Tensor member(const Tensor& x) {
    const std::string name = take_name();
    if (name.empty()) fail("the name of a method");
    if (name == "T") return x.T();
    expect("(");
    CallArguments a = arguments(name);
    const Tensor result = call_method(x, name, a);
    a.check_all_used();
    return result;
  }

  Tensor indexed(const Tensor& x) {
    std::vector<Index> indices;
    do { indices.push_back(index()); } while (take(","));
    expect("]");
    return x.index(indices);
  }
  Index index() {
    if (take("...")) return Ellipsis;
    if (take("None")) return None;
    Slice s;
    if (!next_is(":")) {
      Value v = expression();
      if (!next_is(":")) {
        if (std::holds_alternative<Tensor>(v.what)) return std::get<Tensor>(v.what);
        return integer_of(v);
      }
      s.start = integer_of(v);
    }
    expect(":");
    if (bound_follows()) s.stop = integer_of(expression());
    if (take(":") && bound_follows()) s.step = integer_of(expression());
    return s;
  }
  bool bound_follows() { return !next_is(":") && !next_is(",") && !next_is("]"); }

  Value atom() {
    skip_spaces();
    if (take("(")) return parenthesised(")");
    if (take("[")) return list("]");
    if (next_is("'") || next_is("\"")) return {quoted()};
    if (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.'))
      return {number()};
    const std::string name = take_name();
    if (name.empty()) fail("a value");
    return named(name);
  }
  Value named(const std::string& name) {
    if (name == "None") return {};
    if (name == "True" || name == "False") return {Scalar(name == "True")};
    if (name == "Tensor" && take(".")) return function(take_name());
    if (next_is("(")) return function(name);
    const auto it = variables_.find(name);
    if (it != variables_.end()) return it->second;
    std::vector<std::string> known = function_names();
    for (const auto& [n, v] : variables_) known.push_back(n);
    if (contains_dtype(name)) return {name};
    throw UsageError(
        str("[expression] got ", name, ", which is no variable; did you mean ", nearest_name(name, known), "?"));
  }
  static bool contains_dtype(const std::string& name) {
    try {
      dtypes::from_name(name);
      return true;
    } catch (const Error&) { return false; }
  }
  Value function(const std::string& name) {
    expect("(");
    CallArguments a = arguments(name);
    const Tensor result = call_function(name, a);
    a.check_all_used();
    return {result};
  }
  Value parenthesised(std::string_view end) {
    Value first = expression();
    if (take(end)) return first;
    return list_after(std::move(first), end);
  }
  Value list(std::string_view end) {
    if (take(end)) return {std::vector<Value>{}};
    return list_after(expression(), end);
  }
  Value list_after(Value first, std::string_view end) {
    std::vector<Value> values{std::move(first)};
    while (take(",") && !next_is(end)) values.push_back(expression());
    expect(end);
    return {std::move(values)};
  }

  CallArguments arguments(const std::string& function) {
    std::vector<Value> by_position;
    std::map<std::string, Value> by_name;
    while (!take(")")) {
      const size_t from = at_;
      const std::string name = take_name();
      if (!name.empty() && next_is("=") && !next_is("==")) {
        expect("=");
        by_name[name] = expression();
      } else {
        at_ = from;
        by_position.push_back(expression());
      }
      if (!next_is(")")) expect(",");
    }
    return {function, std::move(by_position), std::move(by_name)};
  }

  // ---- literals ----
  std::string quoted() {
    const char mark = text_[at_++];
    const size_t end = text_.find(mark, at_);
    if (end == std::string_view::npos) fail("the end of a text");
    std::string s(text_.substr(at_, end - at_));
    at_ = end + 1;
    return s;
  }
  Scalar number() {
    size_t end = at_;
    bool floating = false;
    while (end < text_.size()) {
      const char c = text_[end];
      const bool exponent = (c == '+' || c == '-') && (text_[end - 1] == 'e' || text_[end - 1] == 'E');
      if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && c != 'e' && c != 'E' && !exponent) break;
      floating |= c == '.' || c == 'e' || c == 'E';
      end++;
    }
    const char *first = text_.data() + at_, *last = text_.data() + end;
    double real = 0;
    int64_t whole = 0;
    const auto result = floating ? std::from_chars(first, last, real) : std::from_chars(first, last, whole);
    if (result.ec != std::errc{} || result.ptr != last) fail("a number");
    at_ = end;
    return floating ? Scalar(real) : Scalar(whole);
  }

  // ---- kinds ----
  Tensor tensor_of(const Value& v) {
    if (const auto* t = std::get_if<Tensor>(&v.what)) return *t;
    if (const auto* s = std::get_if<Scalar>(&v.what)) return Tensor::scalar(*s);
    fail("a tensor before this");
  }
  int64_t integer_of(const Value& v) {
    const auto* s = std::get_if<Scalar>(&v.what);
    if (!s || s->dtype.is_float()) fail("an integer before this");
    return static_cast<int64_t>(s->value.i);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, Value> variables_;
};

}  // namespace

Tensor evaluate(std::string_view text) { return Parser(text).program(); }

// ---- arguments ----
const ExpressionValue* CallArguments::find(size_t place, const char* name) {
  const auto named = by_name_.find(name);
  const ExpressionValue* found = nullptr;
  if (named != by_name_.end()) {
    found = &named->second;
    used_names_.insert(named->first);
  } else if (place < by_position_.size()) {
    found = &by_position_[place];
    used_ = std::max(used_, place + 1);
  }
  return found && !std::holds_alternative<std::monostate>(found->what) ? found : nullptr;
}

void CallArguments::wrong(const char* name, const char* expected) const {
  throw UsageError(str("[", function_, "] got no ", expected, " as ", name, ", expected one"));
}

Tensor CallArguments::tensor_or_none(size_t place, const char* name) {
  const ExpressionValue* v = find(place, name);
  if (!v) return {};
  if (const auto* t = std::get_if<Tensor>(&v->what)) return *t;
  if (const auto* s = std::get_if<Scalar>(&v->what)) return Tensor::scalar(*s);
  wrong(name, "tensor");
}
Tensor CallArguments::tensor(size_t place, const char* name) {
  if (!find(place, name)) wrong(name, "tensor");
  return tensor_or_none(place, name);
}
Scalar CallArguments::scalar(size_t place, const char* name) {
  const ExpressionValue* v = find(place, name);
  if (!v || !std::holds_alternative<Scalar>(v->what)) wrong(name, "number");
  return std::get<Scalar>(v->what);
}
double CallArguments::number(size_t place, const char* name, double otherwise) {
  if (!find(place, name)) return otherwise;
  const Scalar s = scalar(place, name);
  return s.value.as_double();
}
int64_t CallArguments::integer(size_t place, const char* name, int64_t otherwise) {
  if (!find(place, name)) return otherwise;
  const Scalar s = scalar(place, name);
  if (s.dtype.is_float()) wrong(name, "integer");
  return static_cast<int64_t>(s.value.i);
}
bool CallArguments::flag(size_t place, const char* name, bool otherwise) {
  return integer(place, name, otherwise ? 1 : 0) != 0;
}
std::string CallArguments::text(size_t place, const char* name, const std::string& otherwise) {
  const ExpressionValue* v = find(place, name);
  if (!v) return otherwise;
  if (const auto* s = std::get_if<std::string>(&v->what)) return *s;
  wrong(name, "text");
}
std::vector<int64_t> CallArguments::integers(size_t place, const char* name) {
  std::vector<int64_t> out;
  auto add = [&](const ExpressionValue& v) {
    const auto* s = std::get_if<Scalar>(&v.what);
    if (!s || s->dtype.is_float()) wrong(name, "integer");
    out.push_back(static_cast<int64_t>(s->value.i));
  };
  const ExpressionValue* v = find(place, name);
  if (!v) return out;
  if (const auto* list = std::get_if<std::vector<ExpressionValue>>(&v->what))
    for (const ExpressionValue& one : *list) add(one);
  else if (by_name_.contains(name)) add(*v);
  else
    for (used_ = by_position_.size(); place < used_; place++) add(by_position_[place]);
  return out;
}
Tensors CallArguments::tensors(size_t place, const char* name) {
  const ExpressionValue* v = find(place, name);
  Tensors out;
  auto add = [&](const ExpressionValue& one) {
    if (!std::holds_alternative<Tensor>(one.what)) wrong(name, "tensor");
    out.push_back(std::get<Tensor>(one.what));
  };
  if (!v) return out;
  if (const auto* list = std::get_if<std::vector<ExpressionValue>>(&v->what))
    for (const ExpressionValue& one : *list) add(one);
  else
    for (; place < by_position_.size() && std::holds_alternative<Tensor>(by_position_[place].what); place++) {
      add(by_position_[place]);
      used_ = std::max(used_, place + 1);
    }
  return out;
}
Ints CallArguments::sizes(size_t place, const char* name, const Ints& otherwise) {
  const ExpressionValue* v = find(place, name);
  if (!v) return otherwise;
  if (std::holds_alternative<Scalar>(v->what)) return {integer(place, name, 0)};
  return {integers(place, name)};
}
Axes CallArguments::axes(size_t place, const char* name, const Axes& otherwise) {
  const ExpressionValue* v = find(place, name);
  if (!v) return otherwise;
  if (std::holds_alternative<Scalar>(v->what)) return {static_cast<int>(integer(place, name, 0))};
  std::vector<int> list;
  for (const int64_t a : integers(place, name)) list.push_back(static_cast<int>(a));
  return {list};
}
std::optional<DType> CallArguments::dtype(size_t place, const char* name) {
  const std::string s = text(place, name, "");
  if (s.empty()) return {};
  return dtypes::from_name(s);
}

void CallArguments::check_all_used() const {
  if (used_ < by_position_.size())
    throw UsageError(str("[", function_, "] got ", by_position_.size(), " arguments, expected ", used_));
  for (const auto& [name, value] : by_name_)
    if (!used_names_.contains(name)) throw UsageError(str("[", function_, "] got ", name, "=, which it does not take"));
}

}  // namespace tg::app
