/// \file FUNCTION nodes: made by tracing, replaced by their bodies when they are scheduled or differentiated.
#include "tinygrad/tensor/grad/function.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/grad/gradient.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/uop/multi.h"
#include "tinygrad/uop/variables.h"
#include "tinygrad/uop/walk.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr const char* kCheckpoint = "checkpoint";
/// Makes the parameter that stands for an argument in a body.
UOp param_like(UOp u, size_t slot) {
  auto s = static_cast<int64_t>(slot);
  if (is_bound(u) || is_variable(u)) {
    const ParamArg& v = (is_bound(u) ? u.src(0) : u).arg<ParamArg>();
    return UOp::make(Ops::PARAM, u.dtype(), {}, ParamArg{s, AddrSpace::kAlu, "", str("p", slot), v.vmin, v.vmax});
  }
  UOps src{shape_of(u).stack()};
  for (UOp axis : sharding_sources(device_of(u), shard_axes(u))) src.push_back(axis);
  return UOp::make(Ops::PARAM, u.dtype(), src, ParamArg{s, AddrSpace::kGlobal, device_of(u), "", 0, 0});
}

bool has_memory(UOp buffer) {
  const BufferRef b = buffer_table::get(buffer);
  return b && b->is_allocated();
}

/// First source of a node that belongs to the graph around it, not to a body or kernel of its own.
uint32_t first_source(UOp u) { return u.in(Ops::FUNCTION | Ops::CALL) ? 1 : 0; }

/// Calls `f` on every node of the graph `root`, sources first, not inside of bodies and kernels of calls.
template <class F> void walk_graph(UOp root, F f) {
  MemoScope seen;
  tg::walk(
      root, [&](UOp u) { return seen.has(u); }, [](UOp u) { return u.srcs().subspan(first_source(u)); },
      [&](UOp u) {
        seen.mark(u);
        f(u);
      });
}

/// Rebuilds a graph over changed leaves. Arguments of kernels that are no storage then get some.
class Rebuild {
 public:
  void set(UOp from, UOp to) { map_[from] = to; }
  UOp operator()(UOp root) {
    walk_graph(root, [&](UOp u) {
      if (map_.contains(u)) return;
      bool changed = false;
      UOps src(u.srcs().begin(), u.srcs().end());
      for (size_t i = first_source(u); i < src.size(); i++) {
        UOp m = map_.at(src[i]);
        if (u.is(Ops::CALL) || (i == 0 && u.is(Ops::AFTER) && u.nsrc() == 2 && u.src(1).is(Ops::CALL))) m = stored(m);
        changed |= m != src[i];
        src[i] = m;
      }
      map_[u] = changed ? u.with_srcs(src) : u;
    });
    return map_.at(root);
  }

 private:
  UOp stored(UOp u) {
    if (has_buffer_identity(current_view(u)) || device_of(u).empty()) return u;
    UOp& s = stored_[u];
    if (!s) s = materialize(u, device_of(u));
    return s;
  }
  std::unordered_map<UOp, UOp> map_, stored_;
};

/// Returns what a body uses besides parameters: storage, or what was being written to storage when it was traced.
/// `whole`: every value no parameter goes into.
UOps captured(UOp body, bool whole) {
  std::unordered_map<UOp, std::pair<bool, bool>> has;  // a PARAM, a BUFFER below
  walk_graph(body, [&](UOp u) {
    auto& h = has[u];
    h = {u.is(Ops::PARAM) && !is_variable(u), u.is(Ops::BUFFER)};
    for (uint32_t i = first_source(u); i < u.nsrc(); i++) {
      h.first |= has[u.src(i)].first;
      h.second |= has[u.src(i)].second;
    }
  });
  UOps out, stack{body};
  MemoScope seen;
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    auto [param, buffer] = has[u];
    bool stored = u.in(Ops::AFTER | Ops::CONTIGUOUS) || (whole && u.dtype().is_float() && !u.in(groups::kMovement));
    if (u.is(Ops::BUFFER) || (stored && buffer && !param)) {
      out.push_back(u);
      continue;
    }
    for (size_t i = u.nsrc(); i-- > first_source(u);) stack.push_back(u.src(i));
  }
  return out;
}

/// Gives a value storage of its own in a body, where parameters replace what it was made from.
UOp boundary(UOp u) {
  UOp s = current_view(u);
  if (device_of(u).empty() || has_buffer_identity(s) || s.is(Ops::CONTIGUOUS) || is_bound(u)) return u;
  return UOp::make(Ops::CONTIGUOUS, u.dtype(), {u});
}
}  // namespace

struct GradientOfCall final : CallGradient {
  NodeGradient f;
  explicit GradientOfCall(NodeGradient g) : f(std::move(g)) {}
};
std::shared_ptr<const CallGradient> make_gradient(NodeGradient f) {
  return f ? std::make_shared<GradientOfCall>(std::move(f)) : nullptr;
}

UOps call_gradients(const UOps& gradients, UOp call) {
  auto* g = dynamic_cast<const GradientOfCall*>(call.arg<CallInfo>().gradient.get());
  TG_ASSERT(g, "no gradient in ", call);
  UOps out = g->f(gradients, call);
  TG_CHECK(GradientError, out.size() < call.nsrc(), "[gradient] got ", out.size(), " gradients for the ",
           call.nsrc() - 1, " arguments of ", call.arg<CallInfo>().name);
  out.resize(call.nsrc() - 1);
  for (size_t i = 0; i < out.size(); i++) {
    if (!out[i]) continue;
    UOp arg = call.src(i + 1);
    TG_CHECK(GradientError, shape_of(out[i]) == shape_of(arg), "[gradient] got a gradient of shape ", shape_of(out[i]),
             " for argument ", i, " of ", call.arg<CallInfo>().name, ", expected ", shape_of(arg));
    out[i] = ops::cast(out[i], arg.dtype());
  }
  return out;
}

UOp get_tuple(UOp call, size_t i) {
  UOp t = call.is(Ops::FUNCTION) ? call.src(0) : call;
  TG_CHECK(IndexError, i < t.nsrc(), "[function] got result ", i, ", expected one of ", t.nsrc());
  return UOp::make(Ops::GETTUPLE, t.src(i).dtype(), {call}, Arg(static_cast<int64_t>(i)));
}

UOp make_function(const UOps& values, const UOps& args, CallInfo info, bool allow_implicit) {
  UOps src{UOp()};
  Rebuild r;
  auto add = [&](UOp a) {
    if (std::find(src.begin() + 1, src.end(), a) != src.end()) return;
    r.set(a, param_like(a, src.size() - 1));
    src.push_back(a);
  };
  for (UOp a : args) add(a);
  UOp body = r(UOp::make(Ops::TUPLE, dtypes::void_, values));
  Rebuild more;
  UOps found = captured(body, info.name == kCheckpoint);
  size_t given = src.size();
  std::string names;
  int count = 0;
  for (UOp c : found) {
    if (c.is(Ops::BUFFER) && !is_fresh(c) && has_memory(c))  // scratch of the body's own has none yet
      names += str("\n  ", count++, ": dtype=", c.dtype(), ", size=", shape_of(c).numel(), ", device=", device_of(c));
    UOp p = param_like(c, src.size() - 1);
    more.set(c, p);
    src.push_back(c);
  }
  TG_CHECK(ValueError, allow_implicit || !count, "[function] ", info.name, " has ", count,
           " implicit buffer(s), but allow_implicit=False", names);
  src[0] = src.size() == given ? body : more(body);
  return UOp::make(Ops::FUNCTION, dtypes::void_, src, std::move(info));
}

namespace {
/// Replaces FUNCTION nodes by their bodies.
class Inliner {
 public:
  explicit Inliner(bool keep_gradients) : keep_gradients_(keep_gradients) {}
  UOp run(UOp root) {
    tg::walk(
        root, [&](UOp u) { return done_.contains(u) || is_leaf(u); },
        [&](UOp u) { return u.srcs().subspan(is_kept(u) ? 1 : 0); }, [&](UOp u) { done_[u] = rebuilt(u); });
    return at(root);
  }

 private:
  UOp at(UOp u) const {
    auto it = done_.find(u);
    return it == done_.end() ? u : it->second;
  }
  bool is_leaf(UOp u) const {
    return !(u.node()->flags & Node::kCalls) || (!keep_gradients_ && Graph::global().forwarded(u));
  }
  bool is_kept(UOp u) const { return keep_gradients_ && u.is(Ops::FUNCTION) && u.arg<CallInfo>().gradient; }

  UOp rebuilt(UOp u) const {
    if (u.is(Ops::GETTUPLE) && at(u.src(0)).is(Ops::TUPLE)) return at(u.src(0)).src(static_cast<size_t>(u.int_arg()));
    if (u.is(Ops::FUNCTION) && !is_kept(u)) return inlined(u);
    bool changed = false;
    UOps src;
    for (UOp s : u.srcs()) {
      src.push_back(at(s));
      changed |= src.back() != s;
    }
    return changed ? u.with_srcs(src) : u;
  }
  UOp inlined(UOp u) const {
    const bool precompile = u.arg<CallInfo>().precompile;
    Rebuild r;
    walk_graph(at(u.src(0)), [&](UOp p) {
      if (!p.is(Ops::PARAM) || p.arg<ParamArg>().slot < 0) return;
      UOp a = at(u.src(static_cast<size_t>(p.arg<ParamArg>().slot) + 1));
      r.set(p, precompile ? boundary(a) : a);
    });
    UOp out = r(at(u.src(0)));
    if (!precompile) return out;
    UOps values;
    for (UOp v : out.srcs()) values.push_back(boundary(v));
    return out.with_srcs(values);
  }

  const bool keep_gradients_;
  std::unordered_map<UOp, UOp> done_;
};

/// An input of a function: where it is among the arguments of its call, or the input itself if it lies on no device and
/// so is none of them.
struct FunctionInput {
  size_t place = SIZE_MAX;
  UOpRef constant{};

  Tensor at(UOp call) const { return Tensor::from_uop(constant ? constant.get() : call.src(place + 1)); }
};

/// Makes the gradient of a call from one on tensors.
NodeGradient node_gradient(const TensorGradient& gradient, std::vector<FunctionInput> inputs) {
  return [gradient, inputs = std::move(inputs)](const UOps& g, UOp call) {
    Tensors grads, in, outs;
    for (size_t i = 0; i < call.src(0).nsrc(); i++) {
      outs.push_back(Tensor::from_uop(get_tuple(call, i)));
      grads.push_back(g[i] ? Tensor::from_uop(g[i]) : outs.back().zeros_like());
    }
    for (const FunctionInput& i : inputs) in.push_back(i.at(call));
    Tensors r = gradient(grads, in, outs);
    TG_CHECK(GradientError, r.size() == inputs.size(), "[custom_gradient] got ", r.size(),
             " gradients, expected one for each of ", inputs.size(), " arguments");
    UOps out(call.nsrc() - 1);
    for (size_t i = 0; i < r.size(); i++) {
      if (!r[i].defined() || inputs[i].constant) continue;
      UOp& o = out[inputs[i].place];
      o = o ? o + r[i].uop() : r[i].uop();
    }
    return out;
  };
}
}  // namespace

UOp inline_functions(UOp root, bool keep_gradients) {
  return root.node()->flags & Node::kCalls ? Inliner(keep_gradients).run(root) : root;
}

Tensors call_function(const TensorFunction& f, const Tensors& inputs, const FunctionOptions& options,
                      const TensorGradient& gradient) {
  OpScope s;
  TG_CHECK(ValueError, f, "[function] got no function, expected one of Tensors that returns Tensors");
  std::vector<UOpRef> before;  // the body may assign to its arguments
  for (const Tensor& t : inputs) before.push_back(uop_of(t, "function"));
  Tensors results = f(inputs);
  UOps args, values;
  for (const UOpRef& u : before)
    if (!device_of(u).empty()) args.push_back(u);
  for (const Tensor& t : results) values.push_back(uop_of(t, "function"));
  CallInfo info{options.name, options.precompile, options.precompile_backward, {}, {}};
  if (gradient) {
    std::vector<FunctionInput> all;
    UOps unique;
    for (const UOpRef& u : before) {
      if (device_of(u).empty()) {
        all.push_back({.constant = u});
        continue;
      }
      auto it = std::find(unique.begin(), unique.end(), u.get());
      all.push_back({.place = static_cast<size_t>(it - unique.begin())});
      if (it == unique.end()) unique.push_back(u);
    }
    info.gradient = make_gradient(node_gradient(gradient, std::move(all)));
  }
  UOp call = make_function(values, args, std::move(info), options.allow_implicit);
  Tensors out;
  for (size_t i = 0; i < values.size(); i++) out.push_back(s(get_tuple(call, i)));
  return out;
}

namespace {
/// Computes the gradients of a checkpoint from its body again, on arguments that exist once the gradient that arrives
/// has been computed.
UOps recompute(const UOps& gradients, UOp call) {
  UOps seeds, waits, roots, targets, out(call.nsrc() - 1);
  for (UOp g : gradients) {
    seeds.push_back(g ? materialize(g, device_or_default(call.src(1))) : UOp());
    if (g) waits.push_back(seeds.back());
  }
  Rebuild again;
  for (size_t i = 0; i + 1 < call.nsrc(); i++) {
    UOp a = call.src(i + 1), p = param_like(a, i), later = a;
    if (a.dtype().is_float()) {
      UOp now = current_view(a), storage = has_buffer_identity(now) ? now : materialize(a, device_of(a));
      UOps src{storage};
      src.insert(src.end(), waits.begin(), waits.end());
      later = UOp::make(Ops::AFTER, a.dtype(), src);
    }
    again.set(p, later);
    targets.push_back(later);
  }
  UOp body = again(inline_functions(call.src(0)));
  UOps used;
  for (size_t i = 0; i < seeds.size(); i++)
    if (seeds[i]) {
      roots.push_back(body.src(i));
      used.push_back(seeds[i]);
    }
  UOps grads = compute_gradient(roots, used, targets);
  for (size_t i = 0; i < out.size(); i++)
    if (call.src(i + 1).dtype().is_float()) out[i] = grads[i];
  return out;
}
}  // namespace

Tensors checkpoint(const TensorFunction& f, const Tensors& inputs) {
  OpScope s;
  TG_CHECK(ValueError, f, "[checkpoint] got no function, expected one of Tensors that returns Tensors");
  Tensors stored;
  for (const Tensor& t : inputs) {
    UOp u = uop_of(t, "checkpoint");
    bool value = !device_of(u).empty() && !has_buffer_identity(current_view(u));
    stored.push_back(value ? Tensor::from_uop(materialize(u, device_of(u))) : t);
  }
  UOps values, args;
  for (const Tensor& t : stored)
    if (UOp u = t.uop(); !device_of(u).empty()) args.push_back(u);
  Tensors results = f(stored);
  for (const Tensor& t : results) values.push_back(uop_of(t, "checkpoint"));
  UOp call = make_function(values, args, CallInfo{kCheckpoint, false, false, make_gradient(recompute), {}});
  Tensors out;
  for (size_t i = 0; i < values.size(); i++) out.push_back(s(get_tuple(call, i)));
  return out;
}

Tensor Tensor::as_param(int64_t slot) const {
  OpScope s;
  TG_CHECK(IndexError, slot >= 0, "[as_param] got slot ", slot, ", expected one from 0 on");
  return s(param_like(uop_of(*this, "as_param"), static_cast<size_t>(slot)));
}

Tensor Tensor::call(const Tensors& args, const Tensor& body) { return call_body(args, body); }

Tensor call_body(const Tensors& args, const Tensor& body, std::shared_ptr<const CallGradient> gradient) {
  OpScope s;
  UOps src{UOp::make(Ops::TUPLE, dtypes::void_, {uop_of(body, "call")})};
  for (const Tensor& t : args) src.push_back(uop_of(t, "call"));
  walk_graph(src[0], [&](UOp p) {
    if (!p.is(Ops::PARAM) || p.arg<ParamArg>().slot < 0) return;
    auto slot = static_cast<size_t>(p.arg<ParamArg>().slot);
    TG_CHECK(IndexError, slot < args.size(), "[call] got ", args.size(), " arguments for a body with parameter ", slot);
    TG_CHECK(ShapeError, shape_of(p) == shape_of(src[slot + 1]), "[call] got an argument of shape ",
             shape_of(src[slot + 1]), " for parameter ", slot, ", expected ", shape_of(p));
  });
  return s(get_tuple(
      UOp::make(Ops::FUNCTION, dtypes::void_, src, CallInfo{"call", false, false, std::move(gradient), {}}), 0));
}

}  // namespace tg
