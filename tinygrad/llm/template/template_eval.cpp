/// \file Statements of templates.
#include "tinygrad/llm/template/template_eval.h"

#include <algorithm>

namespace tg::llm::jinja {

/// Redirects output while it lives.
struct Interpreter::Capture {
  Capture(Interpreter& in, Text& to) : in(in), before(std::exchange(in.out_, &to)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { in.out_ = before; }
  Interpreter& in;
  Text* before;
};

Interpreter::Level::Level(Interpreter& in) : in(in) {
  if (++in.levels_ > kMaxRunningLevels)
    in.fail(str("more than ", kMaxRunningLevels, " levels of expressions"), TemplateError::Reason::limit);
}

Interpreter::Interpreter(const Program& program, const TemplateLimits& limits, std::optional<int64_t> unix_seconds)
    : program_(program), limits_(limits), unix_seconds_(unix_seconds) {
  push_scope(-1);
  push_scope(0);
}

void Interpreter::define(const std::string& name, Value v) {
  const auto found = program_.name_ids.find(name);
  if (found != program_.name_ids.end()) scopes_[0].names.emplace_back(found->second, std::move(v));
}

RenderedChat Interpreter::run() {
  Text out;
  out_ = &out;
  try {
    run_body(program_.body);
  } catch (const ValueError& e) { fail(e.what()); }
  result_.text = std::move(out.bytes);
  result_.from_template = std::move(out.trusted);
  return std::move(result_);
}

void Interpreter::fail(const std::string& what, TemplateError::Reason reason) const {
  throw TemplateError(reason, line_, str("[chat_template] ", program_.name, ":", line_, ": ", what));
}

void Interpreter::step(size_t bytes) {
  steps_ += 1 + static_cast<int64_t>(bytes / 64);
  if (steps_ > limits_.steps) fail(str("more than ", limits_.steps, " steps"), TemplateError::Reason::limit);
}

void Interpreter::charge(size_t bytes) {
  if (bytes > limits_.value_bytes || bytes_ > limits_.value_bytes - bytes)
    fail(str("values take more than ", limits_.value_bytes, " bytes"), TemplateError::Reason::limit);
  bytes_ += bytes;
}

Value Interpreter::string(Text t) {
  charge(t.bytes.size() + sizeof(Text));
  return Value(std::move(t));
}

Value Interpreter::list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value) + sizeof(Sequence));
  return Value::list(std::move(items));
}

Value Interpreter::view(std::vector<Value> items, std::string label) {
  charge(items.size() * sizeof(Value) + sizeof(Sequence));
  Sequence s;
  s.items = std::move(items);
  s.label = std::move(label);
  return Value::from_sequence(std::move(s), Value::Kind::view);
}

Value Interpreter::generator(std::vector<Value> items) {
  charge(items.size() * sizeof(Value) + sizeof(Sequence));
  Sequence s;
  s.items = std::move(items);
  s.lazy = true;
  return Value::from_sequence(std::move(s), Value::Kind::view);
}

Value Interpreter::space(std::vector<std::pair<std::string, Value>> attributes) {
  charge(attributes.size() * sizeof(Value) + 64);
  spaces_.push_back({std::move(attributes), nullptr, 0, 0, nullptr, 0, {}});
  return Value::from_space(static_cast<int64_t>(spaces_.size()) - 1);
}

int64_t Interpreter::push_scope(int64_t parent) {
  scopes_.push_back({parent, false, {}});
  stack_.push_back(static_cast<int64_t>(scopes_.size()) - 1);
  return stack_.back();
}

/// Closes the innermost scope; its memory goes where no macro can see it any more.
void Interpreter::pop_scope() {
  const int64_t top = stack_.back();
  stack_.pop_back();
  if (top + 1 == static_cast<int64_t>(scopes_.size()) && !scopes_.back().kept) scopes_.pop_back();
  else charge(sizeof(Scope) + scopes_[static_cast<size_t>(top)].names.size() * sizeof(Value));
}

void Interpreter::set_local(int name, Value v) {
  auto& names = scopes_[static_cast<size_t>(stack_.back())].names;
  for (auto& [n, value] : names)
    if (n == name) {
      value = std::move(v);
      return;
    }
  names.emplace_back(name, std::move(v));
}

Value Interpreter::lookup(int name) {
  for (int64_t at = stack_.back(); at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
    step();
    for (const auto& [n, value] : scopes_[static_cast<size_t>(at)].names)
      if (n == name) return value;
  }
  const std::string& text = program_.names[static_cast<size_t>(name)];
  for (std::string_view known : {"range", "namespace", "dict", "raise_exception", "strftime_now", "cycler", "joiner"})
    if (text == known) return Value::from_callable({Callable::Type::function, text, {}, nullptr, 0});
  return Value::undefined(python_repr(text) + " is undefined");
}

void Interpreter::write(const Text& t) {
  charge(t.bytes.size());
  const size_t done = out_->bytes.size();
  if (t.bytes.size() > limits_.output_bytes || done > limits_.output_bytes - t.bytes.size())
    fail(str("the text is longer than ", limits_.output_bytes, " bytes"), TemplateError::Reason::limit);
  out_->append(t);
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  for (const auto& s : body) {
    const Flow flow = run_statement(*s);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& s) {
  const Level level(*this);
  line_ = s.line;
  step();
  switch (s.type) {
    case Stmt::Type::data: write(s.data.text()); break;
    case Stmt::Type::output: {
      const Value v = eval(*s.exprs[0]);
      write(print(v));
      break;
    }
    case Stmt::Type::loop: return run_loop(s, iterate(eval(*s.exprs[0])), 0);
    case Stmt::Type::branch: return run_branch(s);
    case Stmt::Type::set: assign(s.targets[0], eval(*s.exprs[0])); break;
    case Stmt::Type::set_block: return run_set_block(s);
    case Stmt::Type::macro: run_macro_definition(s); break;
    case Stmt::Type::call: run_call_block(s); break;
    case Stmt::Type::filter: return run_filter_block(s);
    case Stmt::Type::with: return run_with(s);
    case Stmt::Type::generation: run_generation(s); break;
    case Stmt::Type::stop: return Flow::stop_loop;
    case Stmt::Type::next: return Flow::next_turn;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_branch(const Stmt& s) {
  for (size_t i = 0; i < s.bodies.size(); i++)
    if (i >= s.exprs.size() || truth(eval(*s.exprs[i]))) return run_body(s.bodies[i]);
  return Flow::next;
}

void Interpreter::assign(const Target& t, const Value& v) {
  step();
  if (t.is_tuple) {
    const std::vector<Value> parts = iterate(v);
    if (parts.size() != t.parts.size()) fail(str("got ", parts.size(), " values to unpack, expected ", t.parts.size()));
    for (size_t i = 0; i < parts.size(); i++) assign(t.parts[i], parts[i]);
    return;
  }
  if (t.attribute.empty()) return set_local(t.name, v);
  const Value space = lookup(t.name);
  if (space.kind() != Value::Kind::space) fail("attributes of namespaces only can be assigned to");
  auto& attributes = spaces_[static_cast<size_t>(space.space_id())].attributes;
  if (is_loop(space)) fail("attributes of namespaces only can be assigned to");
  for (auto& [name, value] : attributes)
    if (name == t.attribute) {
      value = v;
      return;
    }
  charge(sizeof(Value));
  attributes.emplace_back(t.attribute, v);
}

Text Interpreter::captured(const Body& body, Flow& flow) {
  Text text;
  const Capture capture(*this, text);
  push_scope(stack_.back());
  flow = run_body(body);
  pop_scope();
  return text;
}

Interpreter::Flow Interpreter::run_set_block(const Stmt& s) {
  Flow flow;
  Text text = captured(s.bodies[0], flow);
  if (flow == Flow::next) assign(s.targets[0], filtered(string(std::move(text)), s.filters));
  return flow;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& s) {
  Flow flow;
  Text text = captured(s.bodies[0], flow);
  if (flow != Flow::next) return flow;
  const Value made = filtered(string(std::move(text)), s.filters);
  if (!made.is_string()) fail(str("a filter block gives ", kind_name(made.kind()), ", expected a string"));
  write(made.text());
  return flow;
}

Interpreter::Flow Interpreter::run_with(const Stmt& s) {
  std::vector<Value> values;
  for (const ExprPtr& e : s.exprs) values.push_back(eval(*e));
  push_scope(stack_.back());
  for (size_t i = 0; i < values.size(); i++) assign(s.targets[i], values[i]);
  const Flow flow = run_body(s.bodies[0]);
  pop_scope();
  return flow;
}

void Interpreter::run_generation(const Stmt& s) {
  const size_t begin = out_->bytes.size();
  const bool outermost = calls_ == 0;
  Flow flow;
  write(captured(s.bodies[0], flow));
  if (outermost) result_.generation.push_back({begin, out_->bytes.size()});
}

void Interpreter::run_macro_definition(const Stmt& s) {
  for (int64_t at = stack_.back(); at >= 0; at = scopes_[static_cast<size_t>(at)].parent)
    scopes_[static_cast<size_t>(at)].kept = true;
  set_local(s.name_id, Value::from_callable({Callable::Type::macro, s.name, {}, &s, stack_.back()}));
}

/// Calls a macro with the block as its `caller`.
void Interpreter::run_call_block(const Stmt& s) {
  for (int64_t at = stack_.back(); at >= 0; at = scopes_[static_cast<size_t>(at)].parent)
    scopes_[static_cast<size_t>(at)].kept = true;
  const Expr& e = *s.exprs[0];
  Value f = eval(*e.operands[0]);
  for (size_t i = 0; i + 1 < e.postfix.size(); i++) f = apply(f, e.postfix[i]);
  Arguments a = arguments(e.postfix.back().arguments);
  a.named.emplace_back("caller", Value::from_callable({Callable::Type::caller, "caller", {}, &s, stack_.back()}));
  write(print(call(f, a)));
}

Value Interpreter::call_macro(const Callable& c, const Arguments& a) {
  const Stmt& s = *static_cast<const Stmt*>(c.macro);
  if (++calls_ > limits_.call_depth)
    fail(str("macros call each other more than ", limits_.call_depth, " deep"), TemplateError::Reason::limit);
  const bool block = s.type == Stmt::Type::call;
  const size_t first_default = block ? 1 : 0, defaults = s.exprs.size() - first_default;
  const size_t count = s.parameters.size();
  if (a.positional.size() > count && !s.uses_varargs)
    fail(str("the macro ", python_repr(c.name), " takes at most ", count, " arguments, got ", a.positional.size()));
  push_scope(c.scope);
  std::vector<Value::Entry> extra;
  std::vector<bool> given(count, false);
  for (size_t i = 0; i < std::min(count, a.positional.size()); i++) {
    set_local(s.parameters[i], a.positional[i]);
    given[i] = true;
  }
  for (const auto& [name, value] : a.named) {
    const auto id = program_.name_ids.find(name);
    const auto at =
        std::find(s.parameters.begin(), s.parameters.end(), id == program_.name_ids.end() ? -1 : id->second);
    const auto i = static_cast<size_t>(at - s.parameters.begin());
    if (i < count) {
      if (given[i]) fail(str("the macro ", python_repr(c.name), " got the argument ", python_repr(name), " twice"));
      set_local(s.parameters[i], value);
      given[i] = true;
    } else if (name == "caller" && s.uses_caller) set_local(program_.caller_id, value);
    else if (s.uses_kwargs) extra.emplace_back(Value(name), value);
    else fail(str("the macro ", python_repr(c.name), " takes no argument ", python_repr(name)));
  }
  for (size_t i = 0; i < count; i++) {
    if (given[i]) continue;
    const size_t from_end = count - i;
    if (from_end <= defaults) set_local(s.parameters[i], eval(*s.exprs[s.exprs.size() - from_end]));
    else
      set_local(s.parameters[i],
                Value::undefined("parameter " + python_repr(program_.names[s.parameters[i]]) + " was not provided"));
  }
  if (s.uses_varargs) {
    const size_t first = std::min(count, a.positional.size());
    set_local(program_.varargs_id,
              Value::tuple({a.positional.begin() + static_cast<std::ptrdiff_t>(first), a.positional.end()}));
  }
  if (s.uses_kwargs) set_local(program_.kwargs_id, Value::dict(std::move(extra)));
  Text text;
  {
    const Capture capture(*this, text);
    run_body(s.bodies[0]);
  }
  pop_scope();
  calls_--;
  return string(std::move(text));
}

bool Interpreter::is_loop(const Value& v) const {
  return v.kind() == Value::Kind::space && spaces_[static_cast<size_t>(v.space_id())].loop;
}

/// Returns an attribute of `loop`; undefined for a name it has not.
Value Interpreter::loop_attribute(const Value& v, const std::string& name) {
  const Space& s = spaces_[static_cast<size_t>(v.space_id())];
  const auto n = static_cast<int64_t>(s.items->size()), i = s.turn;
  const auto around = [&](int64_t at, const char* absent) {
    return at >= 0 && at < n ? (*s.items)[static_cast<size_t>(at)] : Value::undefined(absent);
  };
  if (name == "index") return Value(i + 1);
  if (name == "index0") return Value(i);
  if (name == "first") return Value(i == 0);
  if (name == "last") return Value(i + 1 == n);
  if (name == "length") return Value(n);
  if (name == "revindex") return Value(n - i);
  if (name == "revindex0") return Value(n - i - 1);
  if (name == "previtem") return around(i - 1, "there is no previous item");
  if (name == "nextitem") return around(i + 1, "there is no next item");
  if (name == "depth") return Value(s.depth + 1);
  if (name == "depth0") return Value(s.depth);
  if (name == "cycle" || name == "changed") return Value::from_callable({Callable::Type::method, name, v, nullptr, 0});
  return undefined(v, name);
}

/// Runs a loop over these items, inside of `depth` calls of itself.
Interpreter::Flow Interpreter::run_loop(const Stmt& s, std::vector<Value> items, int64_t depth) {
  if (s.exprs.size() > 1) {
    std::vector<Value> kept;
    for (const Value& v : items) {
      step();
      push_scope(stack_.back());
      assign(s.targets[0], v);
      if (truth(eval(*s.exprs[1]))) kept.push_back(v);
      pop_scope();
    }
    items = std::move(kept);
  }
  charge(items.size() * sizeof(Value));
  const Value loop = space({});
  const auto id = static_cast<size_t>(loop.space_id());
  spaces_[id] = {{}, &s, stack_.back(), depth, &items, 0, {}};
  bool completed = false;  // a turn that came to its end
  for (size_t i = 0; i < items.size(); i++) {
    step();
    spaces_[id].turn = static_cast<int64_t>(i);
    push_scope(stack_.back());
    set_local(program_.loop_id, loop);
    assign(s.targets[0], items[i]);
    const Flow flow = run_body(s.bodies[0]);
    pop_scope();
    completed |= flow == Flow::next;
    if (flow == Flow::stop_loop) break;
  }
  spaces_[id] = {};
  // As in Jinja: a loop all of whose turns end by continue or break counts as one without turns.
  if (completed || s.bodies.size() < 2) return Flow::next;
  push_scope(stack_.back());
  const Flow flow = run_body(s.bodies[1]);
  pop_scope();
  return flow;
}

/// Calls `loop`: runs a recursive loop over other items, where the loop stands.
Value Interpreter::call_loop(const Value& loop, const Arguments& a) {
  const Space& own = spaces_[static_cast<size_t>(loop.space_id())];
  if (!own.loop || !own.loop->recursive)
    fail(own.loop ? "a loop that is called needs the word recursive" : "a namespace cannot be called");
  const Stmt& s = *own.loop;
  const int64_t scope = own.scope, depth = own.depth + 1;
  const Value& items = *bind("loop", a, {"iterable"}, 1)[0];
  if (++calls_ > limits_.call_depth)
    fail(str("loops call themselves more than ", limits_.call_depth, " deep"), TemplateError::Reason::limit);
  Text text;
  {
    const Capture capture(*this, text);
    push_scope(scope);
    run_loop(s, iterate(items), depth);
    pop_scope();
  }
  calls_--;
  return string(std::move(text));
}

}  // namespace tg::llm::jinja
