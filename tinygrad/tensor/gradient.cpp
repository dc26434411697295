/// \file The gradient rules and the walk that applies them; Tensor::gradient and backward.
#include "tinygrad/tensor/gradient.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/tensor/attention.h"
#include "tinygrad/tensor/conv.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/function.h"
#include "tinygrad/tensor/history.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {

UOp zero_like(UOp u) { return u.const_like(0); }
UOp recip(UOp u) { return UOp::alu(Ops::RECIPROCAL, {u}); }
UOp log2(UOp u) { return UOp::alu(Ops::LOG2, {u}); }
UOp eq(UOp a, UOp b) { return a.ne(b).logical_not(); }

/// max(x, y): the gradient goes to the greater, half to each of two equals.
UOp max_share(UOp g, UOp x, UOp y) { return (y < x).where(g, eq(x, y).where(g * ConstValue(0.5), zero_like(g))); }

/// cos u. Of u = pi / 2 - y, which is how cos y is written, it is sin y: adding pi / 2 again would round once more.
UOp cos_of(UOp u) {
  for (int i : {0, 1}) {
    UOp c = u.is(Ops::ADD) ? ops::literal_of(u.src(i)) : UOp(), y = c ? u.src(1 - i) : UOp();
    if (!c || !y.is(Ops::MUL) || std::abs(c.const_float() - std::numbers::pi / 2) > 1e-6) continue;
    if (UOp minus = ops::literal_of(y.src(1)); minus && minus.const_float() == -1)
      return UOp::alu(Ops::SIN, {y.src(0)});
  }
  return UOp::alu(Ops::SIN, {u * ConstValue(-1.0) + u.const_like(std::numbers::pi / 2)});
}

Grads grad_pow(UOp g, UOp u, UOp b, UOp e) {
  UOp db = g * eq(e, zero_like(e)).where(zero_like(u), e * UOp::alu(Ops::POW, {b, e + e.const_like(-1)}));
  UOp at_zero = (e < zero_like(e)).where(u.const_like(-std::numeric_limits<double>::infinity()), zero_like(u));
  return {db, g * eq(b, zero_like(b)).where(at_zero, u * log2(b) * ConstValue(std::numbers::ln2))};
}

Grads grad_reduce(UOp g, UOp u, UOp x) {
  const ReduceArg& r = u.arg<ReduceArg>();
  std::vector<int> axes(r.axes.begin(), r.axes.end());
  const Shape& shape = shape_of(x);
  if (r.op == Ops::ADD) return {ops::expand(g, shape)};
  if (r.op == Ops::MAX) {  // equals share
    UOp mask = ops::cast(eq(x, ops::computed_anew(u)), g.dtype());
    return {mask * (g * recip(ops::reduce(Ops::ADD, mask, axes)))};
  }
  // d prod / dx_j is the product of the others: u / x_j, or, where x_j is the only zero, the product of the rest.
  UOp is_zero = eq(x, zero_like(x)), safe = is_zero.where(x.const_like(1), x);
  UOp zeros = ops::reduce(Ops::ADD, ops::cast(is_zero, dtypes::int32), axes), rest = ops::reduce(Ops::MUL, safe, axes);
  return {g * is_zero.where(eq(zeros, zeros.const_like(1)).where(rest, zero_like(rest)), u * recip(safe))};
}

UOp grad_permute(UOp g, UOp u) {
  const auto& order = u.arg<std::vector<int64_t>>();
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); i++) inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return ops::permute(g, inverse);
}
/// offset and size of what a PAD kept of its source, or a SHRINK took of it.
UOp grad_pad(UOp g, UOp u) {
  ops::Pairs p;
  const Shape &s = shape_of(u.src(0)), at = dims_of(u.src(1));
  for (size_t i = 0; i < s.size(); i++) p.push_back({at[i], s[i]});
  return ops::shrink(g, p);
}
UOp grad_shrink(UOp g, UOp u) {
  const Shape at = dims_of(u.src(1));
  return UOp::make(Ops::PAD, g.dtype(), {g, at.stack(), shape_of(u.src(0)).stack()});
}
UOp grad_flip(UOp g, UOp u) {
  const auto& a = u.arg<std::vector<int64_t>>();
  return ops::flip(g, std::vector<int>(a.begin(), a.end()));
}
/// Back to where the source of a COPY is; a number has no place: to the first device.
UOp grad_copy(UOp g, UOp x) {
  const std::string& device = device_of(x).empty() ? device_of(g) : device_of(x);
  if (is_multi(x)) return tensor_detail::spread(g, device, shard_axis(x));
  return device.empty() ? g : UOp::make(Ops::COPY, g.dtype(), {g}, Arg(split_devices(device)[0]));
}
UOp shard_of(UOp g, uint32_t device) {
  return UOp::make(Ops::MSELECT, g.dtype(), {g}, Arg(static_cast<int64_t>(device)));
}
UOp grad_unshard(UOp g, UOp u) {
  g = tensor_detail::spread(g, device_of(u), shard_axis(u));
  UOps parts;
  for (uint32_t i = 0; i < device_count(u); i++) parts.push_back(shard_of(g, i));
  return join_shards(parts, -1);
}
Grads grad_stack(UOp g, UOp u) {
  UOps out;
  const Shape& s = shape_of(u.src(0));
  for (uint32_t i = 0; i < u.nsrc(); i++) {
    ops::Pairs p{{SInt(static_cast<int64_t>(i)), SInt(1)}};
    for (const SInt& n : s) p.push_back({0, n});
    out.push_back(ops::reshape(ops::shrink(g, p), s));
  }
  return Grads(std::move(out));
}

/// A convolution in steps, beside its input and weight.
Grads grad_conv(UOp g, UOp u, UOp x, UOp w) {
  auto [dx, dw] =
      conv::gradients(Tensor::from_uop(g), Tensor::from_uop(x), Tensor::from_uop(w), u.arg<std::vector<int64_t>>());
  return {UOp(), dx.uop(), dw.uop()};
}

/// The axis of the batch an index runs along as 0, 1, 2, ...; -1 for any other index.
int arange_axis(UOp index, size_t batch) {
  UOp u = index;
  while (u.is(Ops::RESHAPE) || u.is(Ops::CAST)) u = u.src(0);
  if (!u.is(Ops::ARANGE)) return -1;
  const Shape& s = shape_of(index);
  int axis = -1;
  for (size_t i = 0; i < s.size(); i++)
    if (s[i] != 1) {
      if (axis >= 0) return -1;
      axis = static_cast<int>(batch - s.size() + i);
    }
  return axis;
}

/// x[i0, i1, ...]: each row of the gradient goes to the place its index names, by comparing all places with it. Indices
/// that only count along an axis of the batch need no comparison: that axis is the place.
UOp grad_index(UOp g, UOp u) {
  const Shape xs = shape_of(u.src(0)), gs = shape_of(u);
  size_t k = u.nsrc() - 1, rest = xs.size() - k, batch = gs.size() - rest;
  std::vector<int> along(k, -1), taken(batch, 0);
  for (size_t i = 0; i < k; i++) {
    int a = arange_axis(u.src(i + 1), batch);
    if (a >= 0 && !taken[static_cast<size_t>(a)] &&
        shape_of(u.src(i + 1)).numel() == gs[static_cast<size_t>(a)].value()) {
      along[i] = a;
      taken[static_cast<size_t>(a)] = 1;
    }
  }
  // Axes of the work: the counted places, the other batch axes (summed), the compared places, the rest.
  std::vector<int> batch_order, compared;
  for (size_t i = 0; i < k; i++)
    if (along[i] >= 0) batch_order.push_back(along[i]);
    else compared.push_back(static_cast<int>(i));
  size_t counted = batch_order.size();
  for (size_t a = 0; a < batch; a++)
    if (!taken[a]) batch_order.push_back(static_cast<int>(a));
  std::vector<int> order = batch_order;
  for (size_t i = 0; i < rest; i++) order.push_back(static_cast<int>(batch + i));
  UOp v = ops::permute(g, order);
  Shape vs = shape_of(v);
  vs.insert(vs.begin() + static_cast<long>(batch), compared.size(), SInt(1));
  v = ops::reshape(v, vs);
  UOp mask;
  for (size_t c = 0; c < compared.size(); c++) {
    UOp index = u.src(static_cast<size_t>(compared[c]) + 1);
    Shape is = shape_of(index);
    is.insert(is.begin(), batch - is.size(), SInt(1));
    index = ops::permute(ops::reshape(index, is), batch_order);
    Shape wide = shape_of(index), line(batch + compared.size() + rest, SInt(1));
    wide.insert(wide.end(), compared.size() + rest, SInt(1));
    int64_t n = xs[static_cast<size_t>(compared[c])].value();
    line[batch + c] = n;
    DType d = index.dtype();
    UOp hit = eq(ops::reshape(index, wide), ops::reshape(ops::arange(n, d.is_weak() ? dtypes::int32 : d), line));
    mask = mask ? mask & hit : hit;
  }
  std::vector<int> summed;
  for (size_t a = counted; a < batch; a++) summed.push_back(static_cast<int>(a));
  DType d = g.dtype(), acc = summed.empty() ? d : sum_acc_dtype(d);
  if (mask) v = mask.where(v, zero_like(v));
  v = ops::cast(ops::reduce(Ops::ADD, ops::cast(v, acc), summed), d);
  // Drop the summed axes, put the places in the order of x, grow the counted ones to x's size.
  Shape out;
  std::vector<int> place(k);
  int next = 0;
  for (size_t i = 0; i < k; i++)
    if (along[i] >= 0) {
      place[i] = next++;
      out.push_back(gs[static_cast<size_t>(along[i])]);
    }
  for (int c : compared) {
    place[static_cast<size_t>(c)] = next++;
    out.push_back(xs[static_cast<size_t>(c)]);
  }
  for (size_t i = 0; i < rest; i++) {
    place.push_back(next++);
    out.push_back(xs[k + i]);
  }
  v = ops::permute(ops::reshape(ops::expand(v,
                                            [&] {
                                              Shape e = shape_of(v);
                                              for (size_t c = 0; c < compared.size(); c++)
                                                e[batch + c] = xs[static_cast<size_t>(compared[c])];
                                              return e;
                                            }()),
                                out),
                   place);
  ops::Pairs grow;
  const Shape now = shape_of(v);
  for (size_t i = 0; i < xs.size(); i++)
    grow.push_back({0, xs[i] == now[i] ? SInt(0) : SInt(xs[i].value() - now[i].value())});
  return ops::pad(v, grow);
}

}  // namespace

// clang-format off
const PatternMatcher<Grads>& pm_gradient() {
  using namespace upat;
  using enum Ops;
  using Up = const Upstream&;
  static const auto* pm = new PatternMatcher<Grads>{
    rule(op<CAST>(x),                [](Up c, X x) -> Grads { return {ops::cast(c.g, x.dtype())}; }),
    rule(op<BITCAST>(x),             [](X) -> Grads { return {UOp()}; }),
    rule(u = op<RECIPROCAL>(x),      [](Up c, U u, X) -> Grads { return {c.g * u * u * ConstValue(-1.0)}; }),
    rule(op<SIN>(x),                 [](Up c, X x) -> Grads { return {cos_of(x) * c.g}; }),
    rule(op<LOG2>(x),                [](Up c, X x) -> Grads { return {c.g * recip(x * ConstValue(std::numbers::ln2))}; }),
    rule(u = op<EXP2>(x),            [](Up c, U u, X) -> Grads { return {c.g * u * ConstValue(std::numbers::ln2)}; }),
    rule(u = op<SQRT>(x),            [](Up c, U u, X) -> Grads { return {c.g * recip(u * ConstValue(2.0))}; }),
    rule(op<TRUNC>(x),               [](X) -> Grads { return {UOp()}; }),
    rule(op<NEG>(x),                 [](Up c, X) -> Grads { return {c.g.neg()}; }),
    rule(op<ADD>(x, y),              [](Up c, X, Y) -> Grads { return {c.g, c.g}; }),
    rule(op<SUB>(x, y),              [](Up c, X, Y) -> Grads { return {c.g, c.g.neg()}; }),
    rule(op<MUL>(x, y),              [](Up c, X x, Y y) -> Grads { return {y * c.g, x * c.g}; }),
    rule(op<MULACC>(x, y, z),        [](Up c, X x, Y y, Z) -> Grads { return {y * c.g, x * c.g, c.g}; }),
    rule(u = op<FDIV>(x, y),         [](Up c, U u, X, Y y) -> Grads { return {c.g * recip(y), c.g * u * recip(y) * ConstValue(-1.0)}; }),
    rule(op<MAX>(x, y),              [](Up c, X x, Y y) -> Grads { return {max_share(c.g, x, y), max_share(c.g, y, x)}; }),
    rule(u = op<POW>(x, y),          [](Up c, U u, X x, Y y) -> Grads { return grad_pow(c.g, u, x, y); }),
    rule(op<WHERE>(a, x, y),         [](Up c, A a, X, Y) -> Grads { return {UOp(), a.where(c.g, zero_like(c.g)), a.where(zero_like(c.g), c.g)}; }),
    rule(any_of(CMPLT | CMPNE | CMPEQ | FLOORDIV, x, y), [](X, Y) -> Grads { return {UOp(), UOp()}; }),
    // f(x, y) = x - k * y for a whole k.
    rule(when(u = any_of(CMOD | FLOORMOD, x, y), [](UOp r) { return r.dtype().is_float(); }),
                                     [](Up c, U u, X x, Y y) -> Grads { return {c.g, c.g * ((u - x) * recip(y))}; }),
    rule(u = op<REDUCE>(x),          [](Up c, U u, X x) -> Grads { return grad_reduce(c.g, u, x); }),
    rule(op<CONTIGUOUS>(x),          [](Up c, X) -> Grads { return {c.g}; }),
    rule(op<CONTIGUOUS_BACKWARD>(x), [](Up c, X) -> Grads { return {UOp::make(CONTIGUOUS, c.g.dtype(), {c.g})}; }),
    rule(u = op<CONTIGUOUS_BACKWARD>(x, y, z), [](Up c, U u, X, Y y, Z z) -> Grads { return attention::is_attention(u) ? attention::gradients(c.g, u, y, z) : grad_conv(c.g, u, y, z); }),
    rule(op<RESHAPE>(x, y),          [](Up c, X x, Y) -> Grads { return {ops::reshape(c.g, shape_of(x)), UOp()}; }),
    rule(op<EXPAND>(x, y),           [](Up c, X, Y) -> Grads { return {c.g, UOp()}; }),
    rule(u = op<PERMUTE>(x),         [](Up c, U u, X) -> Grads { return {grad_permute(c.g, u)}; }),
    rule(u = op<PAD>(x, y, z),       [](Up c, U u, X, Y, Z) -> Grads { return {grad_pad(c.g, u), UOp(), UOp()}; }),
    rule(u = op<SHRINK>(x, y, z),    [](Up c, U u, X, Y, Z) -> Grads { return {grad_shrink(c.g, u), UOp(), UOp()}; }),
    rule(u = op<FLIP>(x),            [](Up c, U u, X) -> Grads { return {grad_flip(c.g, u)}; }),
    rule(u = node<STACK>(),          [](Up c, U u) -> Grads { return grad_stack(c.g, u); }),
    rule(u = op<INDEX>(x, rest),     [](Up c, U u, X) -> Grads { UOps g(u.nsrc()); g[0] = grad_index(c.g, u); return Grads(std::move(g)); }),
    rule(u = node<COPY>(),           [](Up c, U u) -> Grads { UOps g(u.nsrc()); g[0] = grad_copy(c.g, u.src(0)); return Grads(std::move(g)); }),
    rule(u = op<UNSHARD>(x),         [](Up c, U u, X) -> Grads { return {grad_unshard(c.g, u)}; }),
    rule(u = node<MSTACK>(),         [](Up c, U u) -> Grads { UOps g; for (uint32_t i = 0; i < u.nsrc(); i++) g.push_back(shard_of(c.g, i)); return Grads(std::move(g)); }),
  };
  return *pm;
}
// clang-format on

namespace {

/// AFTER(S, STORE(view of S, value)): the written places belong to the value, the others to the old contents.
std::pair<UOp, UOp> grad_assign(UOp g, UOp u) {
  UOp state = u.src(0), dest = u.src(1).src(0);
  if (dest == state) return {UOp(), g};
  UOps chain;
  for (UOp d = dest; d != state; d = d.src(0)) chain.push_back(d);
  UOp value = g;
  for (size_t i = chain.size(); i-- > 0;) {
    UOps src(chain[i].srcs().begin(), chain[i].srcs().end());
    src[0] = value;
    value = UOp::make(chain[i].op(), g.dtype(), src, chain[i].arg());
  }
  UOp written = ops::full(shape_of(dest), true, dtypes::bool_);
  for (UOp v : chain) {
    Upstream up{written};
    written = pm_gradient().rewrite(v, &up).g[0];
  }
  return {written.where(zero_like(g), g), value};
}

}  // namespace

/// Nodes of the graphs, sources first; what a write that has run was made from is behind a leaf.
static UOps differentiable_order(std::span<const UOp> roots) {
  UOps order;
  MemoScope seen;
  const auto sources = [](UOp u) { return is_leaf_write(u) ? std::span<const UOp>() : u.srcs(); };
  for (UOp r : roots)
    walk(
        r, [&](UOp u) { return seen.has(u); }, sources,
        [&](UOp u) {
          seen.mark(u);
          order.push_back(u);
        });
  return order;
}

UOps compute_gradient(UOp root, UOp seed, std::span<const UOp> targets) {
  return compute_gradient({&root, 1}, {&seed, 1}, targets);
}

UOps compute_gradient(std::span<const UOp> given, std::span<const UOp> seeds, std::span<const UOp> asked) {
  // Bodies of functions are differentiated as if they stood here; a function with a gradient of its own stays a node.
  UOps roots, targets;
  for (UOp r : given) roots.push_back(inline_functions(r, true));
  for (UOp t : asked) targets.push_back(inline_functions(t, true));
  // Nodes through which the roots depend on a target. A node that has been computed into a target's storage counts as
  // that target.
  MemoScope target, path, grads;
  std::unordered_map<int64_t, UOp> storage;  // targets that are storage, by slot
  for (UOp t : targets) {
    target.mark(t);
    if (UOp b = tensor_detail::current_view(t); b.is(Ops::BUFFER)) storage.try_emplace(b.arg<ParamArg>().slot, t);
  }
  auto& g = Graph::global();
  auto target_of = [&](UOp u) {
    if (target.has(u)) return u;
    if (u.is(Ops::BUFFER)) {  // what a target was computed into, or was before it was overwritten
      auto it = storage.find(tensor_detail::latest_slot(u));
      return it == storage.end() ? UOp() : it->second;
    }
    UOp f = g.forwarded(u);
    return f && target.has(f) ? f : UOp();
  };
  const UOps order = differentiable_order(roots);
  for (UOp u : order) {
    bool on = bool(target_of(u));
    if (is_leaf_write(u)) {
      if (on) path.mark(u);
      continue;
    }
    if (!u.is(Ops::DETACH) && (u.dtype().is_float() || u.in(Ops::STORE | Ops::FUNCTION | Ops::CALL)))
      for (UOp s : u.srcs()) on |= path.has(s);
    if (on) path.mark(u);
  }
  auto accumulate = [&](UOp u, UOp v) {
    if (!v || !path.has(u) || !u.dtype().is_float()) return;
    v = ops::sum_to(v, shape_of(u));
    UOp before = grads.get(u);
    grads.set(u, before ? before + v : v);
  };
  std::unordered_map<UOp, UOps> results;  // of calls: what arrives at each value, or at each argument after the call
  auto arrive = [&](UOp call, size_t n, size_t i, UOp v) {
    UOps& r = results[call];
    r.resize(n);
    r[i] = r[i] ? r[i] + v : v;
  };
  for (size_t i = 0; i < roots.size(); i++) accumulate(roots[i], seeds[i]);
  for (size_t i = order.size(); i-- > 0;) {
    UOp u = order[i];
    if (auto it = results.find(u); it != results.end()) {
      UOps r = call_gradients(it->second, u);
      for (size_t k = 0; k < r.size(); k++) accumulate(u.src(k + 1), r[k]);
      continue;
    }
    UOp v = grads.get(u);
    if (!v || !path.has(u) || u.is(Ops::DETACH) || is_leaf_write(u)) continue;
    bool below = false;
    for (UOp s : u.srcs()) below |= path.has(s);
    if (!below) continue;
    if (u.is(Ops::GETTUPLE)) {
      UOp call = u.src(0);
      arrive(call, call.src(0).nsrc(), static_cast<size_t>(u.int_arg()), v);
      continue;
    }
    if (u.is(Ops::AFTER)) {
      if (UOp call = u.src(1); u.nsrc() == 2 && call.is(Ops::CALL)) {
        const CallInfo& info = call.arg<CallInfo>();
        int32_t slot = -1;
        for (int32_t w : info.writes)
          if (call.src(static_cast<size_t>(w) + 1) == u.src(0)) slot = w;
        TG_CHECK(GradientError, slot < 0 || info.gradient, "[gradient] got the result of the kernel '", info.name,
                 "', which has no gradient: give custom_kernel one, or detach() the result");
        if (slot >= 0) arrive(call, call.nsrc() - 1, static_cast<size_t>(slot), v);
        else accumulate(u.src(0), v);
        continue;
      }
      if (u.nsrc() != 2 || !u.src(1).is(Ops::STORE)) {
        accumulate(u.src(0), v);
        continue;
      }
      auto [old, value] = grad_assign(v, u);
      accumulate(u.src(0), old);
      accumulate(u.src(1).src(1), value);
      continue;
    }
    // What was a view of shards must be one on the way back.
    constexpr OpSet kByAxis = Ops::RESHAPE | Ops::PAD | Ops::SHRINK | Ops::FLIP | Ops::INDEX | Ops::STACK;
    if (u.in(kByAxis) && is_multi(u) && shard_axis(v) != shard_axis(u))
      v = tensor_detail::spread(v, device_of(u), shard_axis(u));
    Upstream up{v};
    Grads r = pm_gradient().rewrite(u, &up);
    TG_CHECK(GradientError, r.matched, "[gradient] got ", u.op(), ", which has no gradient: detach() its operands");
    TG_ASSERT(r.g.size() == u.nsrc(), "gradient of ", u.op(), " has ", r.g.size(), " parts");
    for (uint32_t s = 0; s < u.nsrc(); s++) accumulate(u.src(s), r.g[s]);
  }
  UOps out;
  std::unordered_map<UOp, UOp> sums;
  for (UOp u : order)
    if (UOp t = target_of(u), v = grads.get(u); t && v) {
      UOp& s = sums[t];
      s = s ? s + v : v;
    }
  for (UOp t : targets) {
    UOp s = sums.count(t) ? sums[t] : UOp();
    // Sharded like its tensor, so that an optimizer can combine them.
    if (s && is_multi(t) && is_multi(s) && shard_axis(s) != shard_axis(t))
      s = tensor_detail::spread(s, device_of(t), shard_axis(t));
    out.push_back(s);
  }
  return out;
}

// ---- Tensor ----

using namespace tensor_detail;

static constexpr const char* kDroppedHint =
    "which the result depends on only through a value whose history was dropped: by a write into a part of it after it "
    "was read, by a captured "
    "function, or because PENDING_NODES or PENDING_MB was exceeded. Mark the tensor with requires_grad_() (Python: "
    "is_param_(True)) before it is "
    "used, "
    "and call backward() inside of the captured function";

/// A view of storage that padding or repeating lies above of.
static bool has_buffer_below(UOp u) {
  while (u.in(kViewOps)) u = u.src(0);
  return u.in(Ops::BUFFER | Ops::AFTER);
}

static UOp seed_of(const Tensor& root, const Tensor& seed, const char* op) {
  UOp u = uop_of(root, op);
  const Shape shape = shape_of(u);
  TG_CHECK(GradientError, u.dtype().is_float(), "[", op, "] got a tensor of ", u.dtype(), ", expected a float one");
  if (!seed.defined()) {
    TG_CHECK(GradientError, shape.numel() == 1, "[", op, "] got shape ", shape,
             ", expected a scalar: call sum() or mean() first, or give the gradient to start from");
    return ops::full(shape, 1.0, u.dtype());
  }
  UOp s = uop_of(seed, op);
  if (shape_of(s) != shape && !shape.symbolic() && shape_of(s).numel() == 1 && shape.numel() == 1)
    s = ops::reshape(s, shape);
  TG_CHECK(ShapeError, shape_of(s) == shape, "[", op, "] got a gradient of shape ", shape_of(s), ", expected ", shape);
  return ops::cast(s, u.dtype());
}

Tensors Tensor::gradient(const Tensors& targets, const Tensor& seed) const {
  OpScope s;
  UOp root = uop_of(*this, "gradient"), start = seed_of(*this, seed, "gradient");
  UOps nodes;
  for (const Tensor& t : targets) {
    nodes.push_back(current_view(uop_of(t, "gradient")));
    TG_CHECK(GradientError, t.dtype().is_float() && !t.dtype().is_weak(), "[gradient] got a target of ", t.dtype(),
             ", expected a float type");
    // A pending or kept expression is its own node; a leaf that has been computed is its storage.
    UOp raw = t.uop();
    if (raw != nodes.back() && !raw.is(Ops::BUFFER)) nodes.back() = raw;
  }
  UOps grads = compute_gradient(root, start, nodes);
  const DroppedHistory dropped(UOps{inline_functions(root, true)});
  for (size_t i = 0; i < targets.size(); i++) {
    TG_CHECK(GradientError, !dropped.takes(nodes[i], bool(grads[i])), "[gradient] got target ", i, " of shape ",
             shape_of(nodes[i]), ", ", kDroppedHint);
  }
  Tensors out;
  for (size_t i = 0; i < targets.size(); i++) out.push_back(grads[i] ? s(grads[i]) : targets[i].zeros_like());
  return out;
}

const Tensor& Tensor::backward(const Tensor& seed) const {
  OpScope s;
  UOp root = uop_of(*this, "backward"), start = seed_of(*this, seed, "backward");
  // The nodes of the graph, each also under the storage it has been computed into; and those with an identity: on a
  // device, or made of constant tensors, which are leaves of their own.
  MemoScope in_graph, placed;
  std::unordered_set<int64_t> overwritten;  // slots of what stands for storage of the graph that was overwritten since
  auto& g = Graph::global();
  const auto mark = [&](UOp from) {
    for (UOp u : differentiable_order({&from, 1})) {
      in_graph.mark(u);
      bool own = u.tag() || !device_of(u).empty();
      for (UOp x : u.srcs()) own |= placed.has(x);
      if (own) placed.mark(u);
      if (UOp f = g.forwarded(u)) {
        in_graph.mark(f);
        placed.mark(f);
      }
      if (is_stale(u)) overwritten.insert(latest_slot(u));
    }
  };
  const UOp inlined = inline_functions(root, true);
  mark(inlined);
  if (inlined != root) mark(root);  // arguments that a function does not use have gradients too: zeros
  std::vector<std::shared_ptr<Impl>> asked, others;
  bool any_asked = false;
  each_live([&](Impl& i) {
    UOp u = i.uop;
    if (!u.dtype().is_float() || u.dtype().is_weak()) return;
    const bool before = u.is(Ops::BUFFER) && overwritten.contains(u.arg<ParamArg>().slot);
    if (before) placed.mark(u);
    if (UOp b = current_view(u); b.is(Ops::BUFFER) && in_graph.has(b)) {
      in_graph.mark(u);
      placed.mark(u);
    }
    if (!before && !in_graph.has(inline_functions(u, true))) return;
    auto p = i.weak_from_this().lock();
    if (!p) return;
    any_asked |= i.asked;
    if (i.requires_grad.value_or(false)) {
      asked.push_back(p);
      others.push_back(std::move(p));
    } else if (!i.requires_grad && placed.has(u)) others.push_back(std::move(p));
  });
  auto& chosen = any_asked ? asked : others;
  bool only_root = std::all_of(chosen.begin(), chosen.end(), [&](auto& p) { return p->uop.get() == root; });
  bool leaf = impl_->requires_grad.value_or(false);
  TG_CHECK(GradientError, leaf || !only_root || !is_realized(),
           "[backward] got a tensor that depends on no other live float tensor: there is nothing to differentiate for. "
           "A tensor that was made from "
           "values needs requires_grad_(); the result of a computation that was realized has lost its history: call "
           "backward() before realize(), or "
           "requires_grad_() on the leaves first");
  UOps nodes;
  for (auto& p : chosen) nodes.push_back(p->uop);
  UOps grads = compute_gradient(root, start, nodes);
  std::unordered_set<UOp> given;
  const DroppedHistory dropped(UOps{inlined});
  if (!dropped.empty())  // tensors that are in the graph only behind what was dropped
    each_live([&](Impl& i) {
      if (!i.grad && i.requires_grad.value_or(true) && i.uop.get().dtype().is_float())
        i.gradient_lost |= dropped.takes(i.uop, in_graph.has(i.uop));
    });
  for (size_t i = 0; i < chosen.size(); i++) {
    if (!grads[i] && any_asked) continue;
    if (dropped.takes(chosen[i]->uop, bool(grads[i]))) {
      chosen[i]->gradient_lost = true;
      chosen[i]->grad.reset();
      continue;
    }
    Tensor t(chosen[i]), grad;
    if (!grads[i]) grad = t.zeros_like();  // no differentiable way leads there
    else if (given.insert(grads[i]).second) grad = s(grads[i]);
    else
      grad = s(own_storage(
          grads[i], device_or_default(chosen[i]->uop)));  // another tensor has the same gradient: each grows by itself
    if (!chosen[i]->grad) {
      chosen[i]->grad = grad.impl_;
      continue;
    }
    const Tensor before(chosen[i]->grad), sum = before + grad;
    if (const UOp u = current_view(before.uop()); has_buffer_below(u) && !writable_state(u))
      set_uop(*before.impl_, sum.uop());
    else before.assign(sum);
  }
  return *this;
}

Tensor Tensor::grad() const {
  uop_of(*this, "grad");
  TG_CHECK(GradientError, impl_->grad || !impl_->gradient_lost, "[grad] got a tensor of shape ", shape(), ", ",
           kDroppedHint);
  if (impl_->grad && impl_->grad_read) *impl_->grad_read = true;
  return Tensor(impl_->grad);
}
void Tensor::set_grad(const Tensor& t) const {
  uop_of(*this, "set_grad");
  if (t.defined())
    TG_CHECK(ShapeError, t.shape() == shape(), "[set_grad] got shape ", t.shape(), ", expected ", shape());
  impl_->grad = t.impl_;
  impl_->gradient_lost = false;
}
void Tensor::zero_grad() const { set_grad(Tensor()); }

const Tensor& Tensor::requires_grad_(bool on) const {
  OpScope s;
  UOp u = uop_of(*this, "requires_grad_");
  TG_CHECK(DTypeError, !on || u.dtype().is_float(), "[requires_grad_] got a tensor of ", u.dtype(),
           ", expected a float type");
  if (on && u.dtype().is_weak()) {  // a number: as a parameter it has the default type
    u = ops::strong(u);
    set_uop(*impl_, u);
  }
  impl_->requires_grad = impl_->asked = on;
  if (!on) return *this;
  // Equal constants are one node: a leaf needs an identity of its own.
  if (device_of(u).empty()) set_uop(*impl_, own_storage(u, device_or_default(u)));
  impl_->uop.get().node()->flags |= Node::kNeedsGrad;
  return *this;
}

bool Tensor::is_param() const { return requires_grad().value_or(true); }
const Tensor& Tensor::is_param_(bool on) const {
  DType d = dtype();
  if (on && !d.is_float()) impl_->requires_grad.reset();
  else requires_grad_(on);
  impl_->asked = false;
  return *this;
}

}  // namespace tg
