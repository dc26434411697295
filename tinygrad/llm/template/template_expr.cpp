/// \file Expressions of templates.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {

Value Interpreter::eval(const Expr& e) {
  const Level level(*this);
  step();
  switch (e.type) {
    case Expr::Type::constant: return e.value;
    case Expr::Type::name: return lookup(e.name);
    case Expr::Type::list:
    case Expr::Type::tuple: {
      std::vector<Value> items;
      for (const ExprPtr& o : e.operands) items.push_back(eval(*o));
      charge(items.size() * sizeof(Value));
      return e.type == Expr::Type::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case Expr::Type::dict: {
      std::vector<Value::Entry> entries;
      for (size_t i = 0; i < e.operands.size(); i += 2) {
        Value key = eval(*e.operands[i]);
        entries.emplace_back(std::move(key), eval(*e.operands[i + 1]));
      }
      charge(entries.size() * sizeof(Value::Entry));
      return Value::dict(std::move(entries));
    }
    case Expr::Type::negate: return negated(eval(*e.operands[0]), e.text);
    case Expr::Type::logical_not: return Value(truth(eval(*e.operands[0])) != e.value.as_bool());
    case Expr::Type::chain: return eval_chain(e);
    case Expr::Type::compare: return eval_compare(e);
    case Expr::Type::concat: return eval_concat(e);
    case Expr::Type::logical_and:
    case Expr::Type::logical_or: {
      Value v;
      for (const ExprPtr& o : e.operands) {
        v = eval(*o);
        if (truth(v) == (e.type == Expr::Type::logical_or)) break;
      }
      return v;
    }
    case Expr::Type::choose: return eval_choose(e);
    case Expr::Type::postfix: return eval_postfix(e);
  }
  fail("unknown expression");
}

Value Interpreter::negated(const Value& v, const std::string& signs) {
  if (!v.is_number() && !v.is_bool()) fail(str("got ", kind_name(v.kind()), " after a sign, expected a number"));
  const bool minus = std::count(signs.begin(), signs.end(), '-') % 2 == 1;
  if (v.is_real()) return Value(minus ? -v.as_double() : v.as_double());
  const int64_t i = v.as_integer();
  if (minus && i == INT64_MIN) fail("an integer has more than 64 bits");
  return Value(minus ? -i : i);
}

Value Interpreter::eval_chain(const Expr& e) {
  Value v = eval(*e.operands[0]);
  for (size_t i = 0; i < e.operators.size(); i++) v = arithmetic(e.operators[i], v, eval(*e.operands[i + 1]));
  return v;
}

Value Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.operands[0]);
  for (size_t i = 0; i < e.operators.size(); i++) {
    Value right = eval(*e.operands[i + 1]);
    bool holds = false;
    switch (e.operators[i]) {
      case Operator::eq: holds = equal(left, right); break;
      case Operator::ne: holds = !equal(left, right); break;
      case Operator::lt: holds = less(left, right); break;
      case Operator::gt: holds = less(right, left); break;
      case Operator::le: holds = less(left, right) || equal(left, right); break;
      case Operator::ge: holds = less(right, left) || equal(left, right); break;
      case Operator::in: holds = contains(right, left); break;
      case Operator::not_in: holds = !contains(right, left); break;
      default: break;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::eval_choose(const Expr& e) {
  size_t i = 0;
  for (; i + 1 < e.operands.size(); i += 2)
    if (truth(eval(*e.operands[i + 1]))) return eval(*e.operands[i]);
  if (i < e.operands.size()) return eval(*e.operands[i]);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Interpreter::eval_concat(const Expr& e) {
  Text all;
  for (const ExprPtr& o : e.operands) {
    const Text t = print(eval(*o));
    charge(t.bytes.size());
    all.append(t);
  }
  return Value(std::move(all));
}

Value Interpreter::eval_postfix(const Expr& e) {
  Value v = eval(*e.operands[0]);
  for (const Postfix& p : e.postfix) {
    step();
    v = apply(v, p);
  }
  return v;
}

Value Interpreter::apply(const Value& v, const Postfix& p) {
  line_ = p.line;
  switch (p.type) {
    case Postfix::Type::attribute: return attribute(v, p.name);
    case Postfix::Type::item: return item(v, eval(*p.item));
    case Postfix::Type::slice: {
      const Value start = p.item ? eval(*p.item) : Value(), stop = p.stop ? eval(*p.stop) : Value();
      return slice(v, start, stop, p.step ? eval(*p.step) : Value());
    }
    case Postfix::Type::call: return call(v, arguments(p.arguments));
    case Postfix::Type::filter: return filter(p.name, v, arguments(p.arguments));
    case Postfix::Type::test: return Value(test(p.name, v, arguments(p.arguments)) != p.negated);
  }
  fail("unknown operation");
}

Value Interpreter::filtered(Value v, const std::vector<Postfix>& filters) {
  for (const Postfix& p : filters) v = apply(v, p);
  return v;
}

Arguments Interpreter::arguments(const CallArguments& a) {
  Arguments out;
  for (const ExprPtr& e : a.positional) out.positional.push_back(eval(*e));
  for (const auto& [name, e] : a.named) {
    for (const auto& [other, _] : out.named)
      if (other == name) fail(str("the argument ", python_repr(name), " stands twice"));
    out.named.emplace_back(name, eval(*e));
  }
  if (a.spread) {
    for (Value& v : iterate(eval(*a.spread))) out.positional.push_back(std::move(v));
    charge(out.positional.size() * sizeof(Value));
  }
  if (a.spread_named) {
    const Value all = eval(*a.spread_named);
    if (!all.is_dict()) fail("** takes a dictionary");
    for (const auto& [k, v] : all.entries()) {
      for (const auto& [other, _] : out.named)
        if (other == k.as_string()) fail(str("the argument ", python_repr(other), " stands twice"));
      out.named.emplace_back(k.as_string(), v);
    }
  }
  return out;
}

std::vector<const Value*> Interpreter::bind(std::string_view what, const Arguments& a,
                                            std::initializer_list<std::string_view> parameters, size_t required) const {
  std::vector<const Value*> out(parameters.size(), nullptr);
  if (a.positional.size() > out.size())
    fail(str(what, " takes at most ", out.size(), " arguments, got ", a.positional.size()));
  for (size_t i = 0; i < a.positional.size(); i++) out[i] = &a.positional[i];
  for (const auto& [name, value] : a.named) {
    const auto i = static_cast<size_t>(std::find(parameters.begin(), parameters.end(), name) - parameters.begin());
    if (i >= out.size() || out[i]) fail(str(what, " takes no argument ", python_repr(name)));
    out[i] = &value;
  }
  for (size_t i = 0; i < required; i++)
    if (!out[i]) fail(str(what, " needs the argument ", python_repr(*(parameters.begin() + i))));
  return out;
}

int64_t Interpreter::integer(const Value& v, std::string_view what) const {
  if (!v.is_integer() && !v.is_bool()) fail(str(what, " got ", kind_name(v.kind()), ", expected an integer"));
  return v.as_integer();
}

bool Interpreter::is_hashable(const Value& v) {
  if (v.is_list() || v.is_dict()) return false;
  if (v.kind() == Value::Kind::view) return v.sequence().label != "dict_keys" && v.sequence().label != "dict_items";
  if (v.kind() != Value::Kind::tuple) return true;
  return std::all_of(v.items().begin(), v.items().end(), is_hashable);
}

bool Interpreter::truth(const Value& v) const {
  switch (v.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::none: return false;
    case Value::Kind::boolean: return v.as_bool();
    case Value::Kind::integer: return v.as_integer() != 0;
    case Value::Kind::real: return v.as_double() != 0;
    case Value::Kind::view: return v.sequence().lazy || v.size() > 0;
    case Value::Kind::callable:
    case Value::Kind::space: return true;
    default: return v.size() > 0;
  }
}

std::vector<Value> Interpreter::iterate(const Value& v) {
  std::vector<Value> out;
  switch (v.kind()) {
    case Value::Kind::undefined: return out;
    case Value::Kind::string: {
      const Text& t = v.text();
      size_t length = 1;
      charge(t.bytes.size() * (sizeof(Value) + sizeof(Text)));
      step(t.bytes.size() * 8);
      for (size_t at = 0; at < t.bytes.size(); at += length) {
        char_at(t.bytes, at, length);
        Text c = t.slice(at, at + length);
        c.markup = false;
        out.emplace_back(std::move(c));
      }
      return out;
    }
    case Value::Kind::dict:
      for (const auto& [key, _] : v.entries()) out.push_back(key);
      break;
    case Value::Kind::list:
    case Value::Kind::tuple:
    case Value::Kind::view: {
      const Sequence& s = v.sequence();
      out.assign(s.items.begin() + static_cast<std::ptrdiff_t>(s.taken), s.items.end());
      if (s.lazy) s.taken = s.items.size();
      break;
    }
    default: fail(str(kind_name(v.kind()), " cannot be iterated over"));
  }
  charge(out.size() * sizeof(Value));
  step(out.size());
  return out;
}

bool Interpreter::equal(const Value& a, const Value& b) {
  int64_t budget = limits_.steps - steps_ + 1, before = budget;
  const bool same = a.equals(b, budget);
  steps_ += before - budget;
  step();
  return same;
}

bool Interpreter::less(const Value& a, const Value& b) {
  step();
  const bool numbers = (a.is_number() || a.is_bool()) && (b.is_number() || b.is_bool());
  if (numbers && !a.is_real() && !b.is_real()) return a.as_integer() < b.as_integer();
  if (numbers) {
    const auto exact = [](const Value& v) {
      return v.is_real() ? static_cast<long double>(v.as_double()) : static_cast<long double>(v.as_integer());
    };
    return exact(a) < exact(b);
  }
  if (a.is_string() && b.is_string()) {
    step(std::min(a.size(), b.size()));
    return a.as_string() < b.as_string();  // UTF-8 sorts as code points do
  }
  const bool lists = (a.is_list() || a.kind() == Value::Kind::tuple) && a.kind() == b.kind();
  if (!lists) fail(str("cannot compare ", kind_name(a.kind()), " with ", kind_name(b.kind()), " by order"));
  const auto x = a.items(), y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); i++)
    if (!equal(x[i], y[i])) return less(x[i], y[i]);
  return x.size() < y.size();
}

bool Interpreter::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) fail(str("cannot look for ", kind_name(item.kind()), " in a string"));
    step(container.size());
    return container.as_string().find(item.as_string()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!is_hashable(item)) fail(str(kind_name(item.kind()), " cannot be a key"));
    step(item.is_string() ? 0 : container.size() * 64);
    return container.find_key(item) != nullptr;
  }
  for (const Value& v : iterate(container))
    if (equal(v, item)) return true;
  return false;
}

Value Interpreter::undefined(const Value& of, const std::string& name) const {
  return Value::undefined(str(python_repr(kind_name(of.kind())), " has no attribute ", python_repr(name)));
}

/// Returns v.name: Python's methods come before keys of dictionaries.
Value Interpreter::attribute(const Value& v, const std::string& name) {
  if (v.is_undefined()) fail(v.looked_for());
  if (v.kind() == Value::Kind::space) {
    if (is_loop(v)) return loop_attribute(v, name);
    for (const auto& [n, value] : spaces_[static_cast<size_t>(v.space_id())].attributes)
      if (n == name) return value;
    return undefined(v, name);
  }
  if (name.starts_with("_")) {
    if (!name.starts_with("__"))
      if (const Value* found = v.find(name)) return *found;
    return Value::undefined(str("access to attribute ", python_repr(name), " is unsafe"));
  }
  const MethodKind kind = method_kind(v, name);
  if (kind == MethodKind::changes)
    return Value::undefined(str("access to attribute ", python_repr(name), " is unsafe: values do not change"));
  if (kind == MethodKind::known) {
    charge(sizeof(Callable));
    return Value::from_callable({Callable::Type::method, name, v, nullptr, 0});
  }
  if (const Value* found = v.find(name)) return *found;
  const bool group = v.kind() == Value::Kind::tuple && v.sequence().label == kGroupLabel;
  if (group && (name == "grouper" || name == "list")) return v.items()[name == "list" ? 1 : 0];
  if (v.kind() == Value::Kind::callable && name == "name") return Value(v.callable().name);
  return undefined(v, name);
}

Value Interpreter::item(const Value& v, const Value& key) {
  if (v.is_undefined()) fail(v.looked_for());
  step();
  if (v.is_dict()) {
    step(v.size() > Mapping::kIndexedEntries && !key.is_string() ? v.size() * 64 : 0);
    if (const Value* found = v.find_key(key)) return *found;
  } else if (key.is_integer() || key.is_bool()) {
    int64_t i = key.as_integer();
    const bool text = v.is_string();
    if (text) step(v.size() * 2);
    const bool indexed = v.is_list() || v.kind() == Value::Kind::tuple ||
                         (v.kind() == Value::Kind::view && v.sequence().label.starts_with("range"));
    const auto n = static_cast<int64_t>(text ? count_chars(v.as_string()) : indexed ? v.size() : 0);
    if (i < 0) i += n;
    if (i >= 0 && i < n && !text) return v.items()[static_cast<size_t>(i)];
    if (i >= 0 && i < n) {
      const size_t begin = char_offset(v.as_string(), static_cast<size_t>(i));
      size_t length = 1;
      char_at(v.as_string(), begin, length);
      return string(v.text().slice(begin, begin + length));
    }
  }
  if (key.is_string())
    return v.is_dict() && method_kind(v, key.as_string()) == MethodKind::none ? undefined(v, key.as_string())
                                                                              : attribute(v, key.as_string());
  const bool scalar = key.is_none() || key.is_bool() || key.is_number();
  return undefined(v, scalar ? print(key).bytes : std::string(kind_name(key.kind())));
}

namespace {

/// Returns how Python shows a slice of the range that is shown as `label`.
std::string sliced_range(const std::string& label, int64_t begin, int64_t end, int64_t stride) {
  int64_t numbers[3] = {0, 0, 1};
  const char* at = label.c_str();
  for (int64_t& n : numbers) {
    while (*at && *at != '-' && (*at < '0' || *at > '9')) at++;
    const auto r = std::from_chars(at, label.c_str() + label.size(), n);
    at = r.ptr;
  }
  const auto times = [](int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); };
  const auto step = static_cast<int64_t>(times(numbers[2], stride));
  const auto place = [&](int64_t i) {
    return static_cast<int64_t>(static_cast<uint64_t>(numbers[0]) + times(i, numbers[2]));
  };
  return str("range(", place(begin), ", ", place(end), step == 1 ? ")" : str(", ", step, ")"));
}

}  // namespace

Value Interpreter::slice(const Value& v, const Value& start, const Value& stop, const Value& by) {
  if (v.is_undefined()) fail(v.looked_for());
  const bool text = v.is_string();
  const bool range = v.kind() == Value::Kind::view && v.sequence().label.starts_with("range");
  if (!text && !range && !v.is_list() && v.kind() != Value::Kind::tuple)
    fail(str("a slice of ", kind_name(v.kind()), ", expected a list or string"));
  const std::vector<Value> items = iterate(v);
  const auto n = static_cast<int64_t>(items.size());
  const int64_t stride = by.is_none() ? 1 : integer(by, "slice");
  if (stride == 0) fail("a slice has the step 0");
  const auto place = [&](const Value& at, int64_t absent) {
    if (at.is_none()) return absent;
    int64_t i = integer(at, "slice");
    if (i < 0) i = i < -n ? (stride < 0 ? -1 : 0) : i + n;
    return std::min(i, stride < 0 ? n - 1 : n);
  };
  const int64_t begin = place(start, stride < 0 ? n - 1 : 0), end = place(stop, stride < 0 ? -1 : n);
  std::vector<Value> out;
  if (stride > 0)
    for (int64_t i = begin; i < end; i += std::min(stride, n + 1)) out.push_back(items[static_cast<size_t>(i)]);
  else
    for (int64_t i = begin; i > end; i += std::max(stride, -n - 1)) out.push_back(items[static_cast<size_t>(i)]);
  if (range) return view(std::move(out), sliced_range(v.sequence().label, begin, end, stride));
  if (!text) return v.kind() == Value::Kind::tuple ? Value::tuple(std::move(out)) : list(std::move(out));
  Text t;
  for (const Value& c : out) t.append(c.text());
  return string(std::move(t));
}

/// Shows a namespace or `loop`.
void Interpreter::show_space(const Value& v, Text& out) {
  const Level level(*this);  // a namespace may hold itself
  const Space& s = spaces_[static_cast<size_t>(v.space_id())];
  if (s.loop) { return out.append_trusted(str("<LoopContext ", s.turn + 1, "/", s.items->size(), ">")); }
  std::vector<Value::Entry> entries;
  for (const auto& [name, value] : s.attributes) entries.emplace_back(Value(name), value);
  out.append_trusted("<Namespace ");
  show(Value::dict(std::move(entries)), out);
  out.append_trusted(">");
}

void Interpreter::show(const Value& v, Text& out) {
  step();
  const auto joined = [&](std::span<const Value> items, std::string_view open, std::string_view close) {
    out.append(open);
    for (size_t i = 0; i < items.size(); i++) {
      if (i) out.append(", ");
      show(items[i], out);
    }
    out.append(close);
  };
  if (out.bytes.size() > limits_.output_bytes) fail("a value is too long to print", TemplateError::Reason::limit);
  switch (v.kind()) {
    case Value::Kind::undefined: out.append("Undefined"); return;
    case Value::Kind::string: {
      charge(v.size());
      const bool markup = v.text().markup;
      if (markup) out.append_trusted("Markup(");
      out.append(v.text().derived(python_repr(v.as_string())));
      if (markup) out.append_trusted(")");
      return;
    }
    case Value::Kind::list: return joined(v.items(), "[", "]");
    case Value::Kind::tuple: return joined(v.items(), "(", v.size() == 1 ? ",)" : ")");
    case Value::Kind::view: {
      const std::string& label = v.sequence().label;
      if (v.sequence().lazy) fail("a lazy sequence has no text: use the filter list");
      if (label.ends_with(")")) return out.append(label);
      return joined(v.items(), label + "([", "])");
    }
    case Value::Kind::dict: {
      out.append("{");
      bool first = true;
      for (const auto& [key, value] : v.entries()) {
        if (!first) out.append(", ");
        first = false;
        show(key, out);
        out.append(": ");
        show(value, out);
      }
      return out.append("}");
    }
    case Value::Kind::callable: {
      if (v.callable().type != Callable::Type::macro) fail("a function has no text");
      return out.append_trusted("<Macro " + python_repr(v.callable().name) + ">");
    }
    case Value::Kind::space: return show_space(v, out);
    default: out.append(print(v)); return;
  }
}

Text Interpreter::print(const Value& v) {
  switch (v.kind()) {
    case Value::Kind::undefined: return {};
    case Value::Kind::none: return Text::of_template("None");
    case Value::Kind::boolean: return Text::of_template(v.as_bool() ? "True" : "False");
    case Value::Kind::integer: return Text::of_template(std::to_string(v.as_integer()));
    case Value::Kind::real: return Text::of_template(python_real(v.as_double()));
    case Value::Kind::string: return v.text();
    default: break;
  }
  Text out;
  show(v, out);
  return out;
}

Value Interpreter::call(const Value& f, const Arguments& a) {
  step();
  if (f.is_undefined()) fail(f.looked_for());
  if (f.kind() == Value::Kind::space) return call_loop(f, a);
  if (f.kind() != Value::Kind::callable) fail(str(kind_name(f.kind()), " cannot be called"));
  const Callable& c = f.callable();
  switch (c.type) {
    case Callable::Type::function: return function(c.name, a);
    case Callable::Type::method:
      return c.self.kind() == Value::Kind::space ? loop_method(c.name, c.self, a) : method(c.self, c.name, a);
    default: return call_macro(c, a);
  }
}

Value Interpreter::loop_method(const std::string& name, const Value& loop, const Arguments& a) {
  if (!is_loop(loop)) fail("the loop has ended");
  Space& own = spaces_[static_cast<size_t>(loop.space_id())];
  if (name == "cycle") {
    if (a.positional.empty()) fail("cycle needs values");
    return a.positional[static_cast<size_t>(own.turn) % a.positional.size()];
  }
  Value now = Value::tuple(a.positional);
  const bool same = own.changed && equal(*own.changed, now);
  own.changed = std::move(now);
  return Value(!same);
}

}  // namespace tg::llm::jinja
