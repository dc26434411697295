/// \file PatternMatcher and graph_rewrite: tables of rules whose bodies are Python functions, or the library's own
/// tables.
#include <nanobind/stl/string_view.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "bind.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/symbolic.h"
#include "upat.h"

namespace tg::python {

namespace {

/// One rule: a pattern and a function, or a whole table of the library.
struct PyRule {
  nb::object pattern, fn;
  bool wants_ctx = false;
  const PatternMatcher<UOp>* native = nullptr;
};
/// Rules by the op of the node they may start at, in order.
struct Matcher {
  std::vector<std::shared_ptr<const PyRule>> rules;
  std::vector<const PyRule*> by_op[kOpCount];

  void add(std::shared_ptr<const PyRule> r) {
    OpSet roots = r->native ? r->native->roots() : pattern_of(r->pattern).ops;
    if (roots.empty() || (!r->native && pattern_of(r->pattern).any)) roots = upat::every_op();
    for (int i = 0; i < kOpCount; i++)
      if (roots.has(static_cast<Ops>(i))) by_op[i].push_back(r.get());
    rules.push_back(std::move(r));
  }
  bool native_only() const {
    for (const auto& r : rules)
      if (!r->native) return false;
    return true;
  }
};

/// Whether a function has a parameter called ctx.
bool takes_ctx(nb::handle fn) {
  nb::object code = nb::getattr(fn, "__code__", nb::none());
  if (code.is_none()) return false;
  const size_t count = nb::cast<size_t>(code.attr("co_argcount")) + nb::cast<size_t>(code.attr("co_kwonlyargcount"));
  nb::object names = code.attr("co_varnames");
  for (size_t i = 0; i < count; i++)
    if (nb::cast<std::string>(names[i]) == "ctx") return true;
  return false;
}

/// What the first rule that has something to say gives, other than the node itself; else None.
nb::object rewrite(const Matcher& m, UOp u, nb::handle ctx) {
  nb::object result = nb::none();
  for (const PyRule* r : m.by_op[static_cast<size_t>(u.op())]) {
    if (r->native) {
      UOpRef out;
      {
        GraphScope g;
        out = UOpRef(r->native->rewrite(u));
      }
      if (out) return wrap(std::move(out));
      continue;
    }
    Bindings b;
    const bool found = match(pattern_of(r->pattern), u, b, [&] {
      nb::dict names;
      for (const auto& [name, node] : b.all()) names[name->c_str()] = wrap(UOpRef(node));
      if (r->wants_ctx) names["ctx"] = ctx;
      nb::object out = r->fn(**names);
      if (out.is_none() || (is_uop(out) && node_of(out) == u)) return false;
      result = std::move(out);
      return true;
    });
    if (found) return result;
  }
  return result;
}

/// One rewrite of a graph. The graph's lock is held for building nodes only, as rules run Python.
class Rewriter {
 public:
  Rewriter(const Matcher* after, const Matcher* before, nb::handle ctx, nb::handle gate, bool enter_calls)
      : after_(after), before_(before), ctx_(ctx), gate_(gate), enter_calls_(enter_calls) {}

  /// Sources first, results rewritten again until nothing fires; `before` applies to a node until nothing fires before
  /// its sources are visited.
  UOpRef to_fixed_point(UOp root) {
    struct Frame {
      UOp node, current;
      enum : uint8_t { kEnter, kSources, kLink } stage = kEnter;
    };
    std::vector<Frame> stack{{root, root}};
    std::unordered_set<UOp> open;
    while (!stack.empty()) {
      Frame& f = stack.back();
      if (done_.contains(f.node)) {
        open.erase(f.node);
        stack.pop_back();
        continue;
      }
      if (f.stage == Frame::kEnter) {
        if (!open.insert(f.node).second) circle(f.node);
        if (before_) {
          bool stop = false;
          f.current = first(f.node, stop);
          if (stop) {
            set(f.node, f.current);
            continue;
          }
        }
        f.stage = Frame::kSources;
        push_sources(f.current, [&](UOp s) {
          if (!open.contains(s)) stack.push_back({s, s});
        });
        continue;
      }
      if (f.stage == Frame::kSources) {
        UOp out = rebuilt(f.current);
        if (out == f.current) {
          out = after_ ? rule(*after_, f.current) : UOp();
          if (!out) {
            set(f.node, f.current);
            continue;
          }
        }
        f.current = out;
        f.stage = Frame::kLink;
        if (done_.contains(out)) continue;
        if (open.contains(out) && out != f.node) circle(out);
        if (out == f.node) circle(out);
        stack.push_back({out, out});
        continue;
      }
      set(f.node, result(f.current));
    }
    return UOpRef(result(root));
  }

  /// Each node once: `before` on the node (its result is final), else its sources and then `after` on what they make of
  /// it (final too).
  UOpRef once(UOp root) {
    std::vector<std::pair<UOp, bool>> stack{{root, false}};
    while (!stack.empty()) {
      const auto [n, ready] = stack.back();
      stack.pop_back();
      if (done_.contains(n)) continue;
      if (!ready) {
        if (UOp out = before_ ? rule(*before_, n) : UOp()) {
          set(n, out);
          continue;
        }
        stack.emplace_back(n, true);
        push_sources(n, [&](UOp s) { stack.emplace_back(s, false); });
        continue;
      }
      UOp out = rebuilt(n);
      if (UOp r = after_ ? rule(*after_, out) : UOp()) out = r;
      set(n, out);
    }
    return UOpRef(result(root));
  }

 private:
  [[noreturn]] void circle(UOp u) {
    std::string text;
    {
      GraphScope g;
      text = render_expr(u);
    }
    PyErr_SetString(PyExc_RuntimeError,
                    str("infinite loop in graph_rewrite: rules do not terminate at ", text).c_str());
    throw nb::python_error();
  }
  UOp keep(UOpRef u) {
    kept_.push_back(std::move(u));
    return kept_.back();
  }
  void set(UOp from, UOp to) { done_[from] = keep(UOpRef(to)); }
  UOp result(UOp u) const { return done_.at(u); }

  /// Empty when no rule fires.
  UOp rule(const Matcher& m, UOp u) {
    nb::object out = rewrite(m, u, ctx_);
    return out.is_none() ? UOp() : keep(UOpRef(node_of(out)));
  }
  UOp before(UOp u) {
    if (auto it = tried_.find(u); it != tried_.end()) return it->second;
    return tried_[u] = rule(*before_, u);
  }
  /// `before` until nothing fires; `stop` when a rule says that this node is done.
  UOp first(UOp u, bool& stop) {
    std::unordered_set<UOp> seen;
    try {
      while (true) {
        if (!seen.insert(u).second) circle(u);
        UOp next = before(u);
        if (!next) return u;
        u = next;
      }
    } catch (nb::python_error& e) {
      if (!e.matches(gate_)) throw;
      stop = true;
      return u;
    }
  }
  template <class F> void push_sources(UOp n, F push) {
    const bool closed = !enter_calls_ && (n.is(Ops::FUNCTION) || n.is(Ops::CALL)) && n.nsrc() > 0;
    if (closed) done_.try_emplace(n.src(0), n.src(0));
    for (size_t i = n.nsrc(); i-- > 0;)
      if (!done_.contains(n.src(i))) push(n.src(i));
  }
  UOp rebuilt(UOp n) {
    UOps src;
    bool changed = false, types = false;
    for (UOp s : n.srcs()) {
      const auto it = done_.find(s);
      if (it == done_.end()) circle(s);
      src.push_back(it->second);
      changed |= it->second != s;
      types |= it->second.dtype() != s.dtype();
    }
    if (!changed) return n;
    GraphScope g;
    if (types && groups::kAlu.has(n.op()))
      return keep(UOpRef(UOp::make(n.op(), derive_dtype(n.op(), src), src, n.arg(), n.tag())));
    return keep(UOpRef(n.with_srcs(src)));
  }

  const Matcher *after_, *before_;
  nb::handle ctx_, gate_;
  bool enter_calls_;
  std::unordered_map<UOp, UOp> done_, tried_;
  std::vector<UOpRef> kept_;
};

UOpObject graph_rewrite_py(const PyUOp& sink, const Matcher& pm, nb::handle ctx, bool bottom_up, nb::handle,
                           const Matcher* bpm, bool walk, bool enter_calls, nb::handle gate) {
  if (pm.native_only() && !bottom_up && !bpm && !walk) {
    return made([&] {
      PatternMatcher<UOp> all;
      for (const auto& r : pm.rules) all = all + *r->native;
      return graph_rewrite(sink.get(), all, {.name = "python"});
    });
  }
  Rewriter r(bottom_up ? nullptr : &pm, bottom_up ? &pm : bpm, ctx, gate, enter_calls);
  return wrap(walk ? r.once(sink.get()) : r.to_fixed_point(sink.get()));
}

const PatternMatcher<UOp>* library_table(std::string_view name) {
  if (name == "symbolic_simple") return &symbolic_simple();
  if (name == "symbolic") return &symbolic();
  if (name == "sym") return &sym();
  if (name == "pm_simplify_valid") return &pm_simplify_valid();
  if (name == "commutative") return &canonical_order();
  throw nb::key_error(std::string(name).c_str());
}

}  // namespace

void bind_matcher(nb::module_& m) {
  bind_upat(m);
  nb::class_<Matcher> c(m, "PatternMatcher",
                        "A table of rules (UPat, function). A function takes the names its pattern binds, and `ctx` if "
                        "it wants the rewrite's context; None declines.",
                        nb::dynamic_attr());
  c.def(
      "__init__",
      [](Matcher* self, nb::handle patterns, nb::handle) {
        new (self) Matcher;
        for (nb::handle p : nb::iter(patterns)) {
          if (!PyTuple_Check(p.ptr()) || nb::len(p) != 2) throw nb::type_error("a rule is a tuple (UPat, function)");
          PyRule r{p[0], p[1]};
          pattern_of(r.pattern);
          r.wants_ctx = takes_ctx(r.fn);
          self->add(std::make_shared<const PyRule>(std::move(r)));
        }
      },
      "patterns"_a, "compiled"_a = true);
  c.def_static(
      "_library",
      [](std::string_view name) {
        Matcher r;
        r.add(std::make_shared<const PyRule>(PyRule{{}, {}, false, library_table(name)}));
        return r;
      },
      "name"_a, "A table of the library's own.");
  c.def(
      "__add__",
      [](const Matcher& a, const Matcher& b) {
        Matcher r;
        for (const Matcher* t : {&a, &b})
          for (const auto& rule : t->rules) r.add(rule);
        return r;
      },
      "more"_a, "A table that tries this one's rules first.");
  c.def_prop_ro("patterns", [](const Matcher& t) {
    nb::list l;
    for (const auto& r : t.rules)
      if (!r->native) l.append(nb::make_tuple(r->pattern, r->fn));
    return l;
  });
  c.def(
      "rewrite", [](const Matcher& t, const PyUOp& u, nb::handle ctx) { return rewrite(t, u.get(), ctx); }, "uop"_a,
      "ctx"_a = nb::none(),
      "What the first rule gives that matches this node and does not decline; None when there is none.");
  m.def("graph_rewrite", &graph_rewrite_py, "sink"_a, "pm"_a, "ctx"_a = nb::none(), "bottom_up"_a = false,
        "name"_a = nb::none(), "bpm"_a = nb::none(), "walk"_a = false, "enter_calls"_a = false, "gate"_a = nb::none());
}

}  // namespace tg::python
