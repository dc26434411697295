/// \file Rewrites of the tensor graph before ranges are assigned.
#include "tinygrad/schedule/early.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/factor_rows.h"
#include "tinygrad/target/device_traits.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {
using namespace upat;
namespace {

UOp movement(Ops op, UOp x, const Shape& shape) { return UOp::make(op, x.dtype(), {x, shape.stack()}); }
bool has_zero(const Shape& s) {
  return std::any_of(s.begin(), s.end(), [](const SInt& d) { return d == 0; });
}
/// Returns a value of this shape that is one literal everywhere.
UOp filled(ConstValue v, DType d, const Shape& shape) {
  UOp c = UOp::constant(v, d);
  return shape.empty() ? c : movement(Ops::EXPAND, c, shape);
}
/// Returns true for a value that lies row-major in memory of its own.
bool is_contiguous(UOp x) {
  UOp s = x;
  while (s.is(Ops::RESHAPE)) s = s.src(0);
  return s.in(Ops::CONTIGUOUS | Ops::COPY | Ops::COLLECTIVE) || is_whole_buffer(x);
}
bool all_zero(UOp stack) {
  return std::all_of(stack.srcs().begin(), stack.srcs().end(), [](UOp s) { return s.is_const_int(0); });
}

struct EarlyContext {
  const ScheduleOptions& options;
  std::vector<std::pair<int64_t, int64_t>> softmaxes;  ///< elements and results of sums of exponentials over long rows
};
EarlyContext context_of(UOp sink, const ScheduleOptions& options) {
  EarlyContext c{options, {}};
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || u.arg<ReduceArg>().op != Ops::ADD || !u.src(0).is(Ops::EXP2)) continue;
    const Shape &in = shape_of(u.src(0)), &out = shape_of(u);
    if (in.symbolic() || out.symbolic() || out.numel() == 0 || in.numel() / out.numel() < options.l2_bytes / 8)
      continue;  // half of the cache: the row does not stay there
    c.softmaxes.push_back({in.numel(), out.numel()});
  }
  return c;
}

/// Returns true for a maximum or a sum of exponentials over long rows of a softmax, which have short parts
/// (partial_max_sum.cpp), however many they are.
bool is_softmax_row(const EarlyContext& c, const ReduceArg& arg, UOp x, int64_t inputs, int64_t results) {
  return contains(c.softmaxes, std::pair(inputs, results)) && arg.axes.size() == 1 &&
         static_cast<size_t>(arg.axes[0]) + 1 == shape_of(x).size() && (arg.op == Ops::MAX || x.is(Ops::EXP2));
}
/// Reduces one axis in `parts` parts, then these.
UOp reduce_in_parts(UOp u, UOp x, int32_t axis, int64_t parts) {
  const ReduceArg& arg = u.arg<ReduceArg>();
  Shape split = shape_of(x), kept = shape_of(u);
  const int64_t n = split[static_cast<size_t>(axis)].value();
  split[static_cast<size_t>(axis)] = kept[static_cast<size_t>(axis)] = parts;
  split.insert(split.begin() + axis + 1, SInt(n / parts));
  ReduceArg first{arg.op, {}}, second{arg.op, {axis}};
  for (int32_t b : arg.axes) first.axes.push_back(b < axis ? b : b + 1);
  UOp partial = UOp::make(Ops::REDUCE, u.dtype(), {movement(Ops::RESHAPE, x, split)}, first);
  partial = UOp::make(Ops::CONTIGUOUS, u.dtype(), {partial});
  return UOp::make(Ops::REDUCE, u.dtype(), {movement(Ops::RESHAPE, partial, kept)}, second);
}
/// Returns the elements of a value before it was moved and repeated; 0: their number is not known.
int64_t own_elements(UOp v) {
  while (v.in(groups::kMovement) || v.is(Ops::CAST)) v = v.src(0);
  return shape_of(v).symbolic() ? 0 : shape_of(v).numel();
}
/// Returns true for a value computed from exponentials element by element, as the probabilities of attention, which is
/// a kernel as a whole (fuse_attention.cpp).
bool has_exponentials(UOp v) {
  UOps seen{v};
  for (size_t i = 0; i < seen.size(); i++) {
    if (seen[i].is(Ops::EXP2)) return true;
    if (seen[i].is(Ops::REDUCE) || is_contiguous(seen[i])) continue;
    for (UOp s : seen[i].srcs()) add_once(seen, s);
  }
  return false;
}
/// Returns true for products each of whose factors is used many times: threads compute tiles of their sums then, and do
/// not share one.
bool reuses_factors(UOp x, int64_t inputs) {
  constexpr int64_t kUses = 16;
  while (x.is(Ops::CAST)) x = x.src(0);
  return x.is(Ops::MUL) && std::all_of(x.srcs().begin(), x.srcs().end(), [&](UOp f) {
           const int64_t own = own_elements(f);
           return own > 0 && inputs / own >= kUses && !has_exponentials(f);
         });
}
/// Splits a long sum of products on a GPU that has too few results to keep all of its threads busy.
UOp split_products(UOp u, UOp x, int64_t inputs, int64_t results, int64_t busy) {
  constexpr int64_t kOfThread = 16, kTerms = 2048, kLeastTerms = 256;
  const int64_t terms = inputs / results, threads = std::max<int64_t>(results / kOfThread, 1),
                most = std::min(busy / threads, terms / kLeastTerms);
  if (terms < kTerms || most < 2 || !reuses_factors(x, inputs)) return {};
  int32_t axis = -1;
  int64_t best = 1;
  for (int32_t a : u.arg<ReduceArg>().axes) {
    const int64_t n = shape_of(x)[static_cast<size_t>(a)].value();
    int64_t parts = std::min(most, n / 2);
    while (parts > best && n % parts) parts--;
    if (parts > best) {
      best = parts;
      axis = a;
    }
  }
  return axis < 0 ? UOp() : reduce_in_parts(u, x, axis, best);
}
/// Splits a reduction of many elements to few into two: the first has enough results for all threads. Splits the
/// outermost reduced axis it can, so that the first step reads memory in order.
UOp split_reduce(const EarlyContext& c, UOp u, UOp x) {
  const ScheduleOptions& o = c.options;
  if (!o.split_reduces) return {};
  const Shape &in = shape_of(x), &out = shape_of(u);
  if (in.symbolic() || out.symbolic()) return {};
  const int64_t results = out.numel(), inputs = in.numel();
  if (results == 0) return {};
  if (const int64_t busy = device_traits(device_of(u)).busy_threads)
    if (UOp split = split_products(u, x, inputs, results, busy)) return split;
  if (inputs / results < o.split_threshold) return {};
  const ReduceArg& arg = u.arg<ReduceArg>();
  const int64_t part = o.l2_bytes / 256;  // elements of a long row: several parts stay in the cache
  const bool softmax = is_softmax_row(c, arg, x, inputs, results);
  if (results >= 64 && !softmax) return {};
  for (int32_t a : arg.axes) {
    const int64_t n = in[static_cast<size_t>(a)].value();
    // Parts of one element would be the same reduction again.
    for (int64_t parts = softmax ? std::max<int64_t>(256, n / part) : 256; parts >= 8; parts--)
      if (n % parts == 0 && n / parts >= 2 && results * parts <= (int64_t{1} << o.split_size))
        return reduce_in_parts(u, x, a, parts);
  }
  // No size divides: a sum may be padded with zeros.
  auto longest = static_cast<size_t>(*std::max_element(arg.axes.begin(), arg.axes.end(), [&](int32_t a, int32_t b) {
    return in[static_cast<size_t>(a)].value() < in[static_cast<size_t>(b)].value();
  }));
  if (arg.op != Ops::ADD || in[longest].value() < 4096 || results >= 64) return {};
  Shape size = in, offset(in.size(), SInt(0));
  size[longest] = (in[longest].value() + 255) / 256 * 256;
  if (size[longest] == in[longest]) return {};  // 256 parts are more than SPLIT_SIZE allows
  return UOp::make(Ops::REDUCE, u.dtype(), {UOp::make(Ops::PAD, x.dtype(), {x, offset.stack(), size.stack()})}, arg);
}

UOp fold_permute(UOp u, UOp x) {
  const auto& p = u.arg<std::vector<int64_t>>();
  if (std::is_sorted(p.begin(), p.end())) return x;
  if (!x.is(Ops::PERMUTE)) return {};
  std::vector<int64_t> both;
  for (int64_t a : p) both.push_back(x.arg<std::vector<int64_t>>()[static_cast<size_t>(a)]);
  return UOp::make(Ops::PERMUTE, u.dtype(), {x.src(0)}, both);
}
/// Gives a CALL contiguous arguments.
UOp store_arguments(UOp call) {
  UOps src;
  for (UOp s : call.srcs()) src.push_back(is_contiguous(s) ? s : UOp::make(Ops::CONTIGUOUS, s.dtype(), {s}));
  return std::equal(src.begin(), src.end(), call.srcs().begin()) ? UOp() : call.with_srcs(src);
}
/// Gives a COPY a contiguous source; removes it where the source is on the device already, or on any.
UOp store_copied(UOp u, UOp x) {
  const std::string& from = device_of(x);
  if (from.empty() || from == u.arg<std::string>()) return x;
  if (is_contiguous(x)) return {};
  return UOp::make(Ops::COPY, u.dtype(), {UOp::make(Ops::CONTIGUOUS, x.dtype(), {x})}, u.arg());
}
/// Gives a COLLECTIVE a contiguous source.
UOp store_exchanged(UOp u, UOp x) {
  if (is_contiguous(x)) return {};
  return UOp::make(Ops::COLLECTIVE, u.dtype(), {UOp::make(Ops::CONTIGUOUS, x.dtype(), {x})}, u.arg());
}
/// Removes axes of size 1 from a reduction, merges it with an equal one of its source, or splits it.
UOp fold_reduce(const EarlyContext& c, UOp u, UOp x) {
  const ReduceArg& arg = u.arg<ReduceArg>();
  const Shape& in = shape_of(x);
  if (has_zero(in)) return filled(identity_element(arg.op, u.dtype()), u.dtype(), shape_of(u));
  ReduceArg kept{arg.op, {}};
  for (int32_t a : arg.axes)
    if (!(in[static_cast<size_t>(a)] == 1)) kept.axes.push_back(a);
  if (kept.axes.empty()) return x;
  if (kept.axes.size() != arg.axes.size()) return UOp::make(Ops::REDUCE, u.dtype(), {x}, kept);
  if (UOp stored = store_factor_rows(u, c.options)) return stored;
  if (!x.is(Ops::REDUCE) || x.arg<ReduceArg>().op != arg.op) return split_reduce(c, u, x);
  ReduceArg both = arg;
  both.axes.insert(both.axes.end(), x.arg<ReduceArg>().axes.begin(), x.arg<ReduceArg>().axes.end());
  std::sort(both.axes.begin(), both.axes.end());
  return UOp::make(Ops::REDUCE, u.dtype(), {x.src(0)}, both);
}
const PatternMatcher<>& early_rules() {
  // clang-format off
  static const auto* pm = new PatternMatcher<>({
      // ---- movement ops that do nothing or follow each other ----
      rule(u = op<Ops::RESHAPE>(x, _), [](U u, X x) -> UOp {
        if (shape_of(u) == shape_of(x)) return x;
        return x.is(Ops::RESHAPE) ? UOp::make(Ops::RESHAPE, u.dtype(), {x.src(0), u.src(1)}) : UOp();
      }),
      rule(u = op<Ops::EXPAND>(x, _), [](U u, X x) -> UOp { return shape_of(u) == shape_of(x) ? UOp(x) : UOp(); }),
      rule(u = op<Ops::PERMUTE>(x), [](U u, X x) { return fold_permute(u, x); }),
      rule(u = op<Ops::FLIP>(x), [](U u, X x) -> UOp {
        return u.arg<std::vector<int64_t>>().empty() ? UOp(x) : UOp();
      }),
      rule(u = op<Ops::SHRINK>(x, _, _), [](U u, X x) -> UOp {
        return all_zero(u.src(1)) && shape_of(u) == shape_of(x) ? UOp(x) : UOp();
      }),
      rule(u = op<Ops::PAD>(x, _, _), [](U u, X x) -> UOp {
        if (has_zero(shape_of(x))) return filled(0, u.dtype(), shape_of(u));
        return all_zero(u.src(1)) && shape_of(u) == shape_of(x) ? UOp(x) : UOp();
      }),
      // ---- storage ----
      rule(u = node<Ops::CALL>(), [](U u) { return store_arguments(u); }),
      rule(u = op<Ops::CONTIGUOUS>(x), [](U, X x) -> UOp { return is_contiguous(x) ? UOp(x) : UOp(); }),
      rule(u = op<Ops::COPY>(x), [](U u, X x) { return store_copied(u, x); }),
      rule(u = op<Ops::COLLECTIVE>(x), [](U u, X x) { return store_exchanged(u, x); }),
      rule(op<Ops::DETACH>(x), x),
      rule(op<Ops::CONTIGUOUS_BACKWARD>(x), x),
      rule(op<Ops::CUSTOM_GRADIENT>(x, _, _), x),
      // ---- reductions ----
      rule(u = op<Ops::REDUCE>(x), [](const EarlyContext& c, U u, X x) { return fold_reduce(c, u, x); }),
  });
  // clang-format on
  return *pm;
}
std::vector<int32_t> count_uses(const UOps& order) {
  std::vector<int32_t> uses(Graph::current().id_limit(), 0);
  for (UOp u : order)
    for (UOp s : u.srcs()) uses[s.id()]++;
  return uses;
}
/// Rebuilds a graph, given sources first: `replace(node, new sources, nodes made so far)` may change a node's sources.
/// Returns the last node; nodes keep the operations they were made for.
template <class F> UOp rebuild_with_origins(const UOps& order, F&& replace) {
  MemoScope made;
  const Origin origin(nullptr);
  UOps src;
  for (UOp u : order) {
    src.clear();
    for (UOp s : u.srcs()) src.push_back(made.get(s));
    origin.set(Graph::current().origin(u));
    replace(u, src, made);
    made.set(u, std::equal(src.begin(), src.end(), u.srcs().begin()) ? u : u.with_srcs(src));
  }
  return made.get(order.back());
}
/// Computes products of narrow floats that only a sum in a wider type reads in that type: none is rounded. (Products of
/// integers stay as they are: a program may rely on those that wrap. Matrices and convolutions widen theirs, see
/// tensor/ops/product.h.)
UOp widen_products(UOp sink) {
  const UOps order = sink.toposort();
  auto is_narrow_product = [](UOp sum) {
    if (!sum.is(Ops::REDUCE) || sum.arg<ReduceArg>().op != Ops::ADD || !sum.src(0).is(Ops::CAST) ||
        !sum.src(0).src(0).is(Ops::MUL))
      return false;
    const DType narrow = sum.src(0).src(0).dtype();
    return narrow.is_float() && narrow != sum.dtype() && can_lossless_cast(narrow, sum.dtype());
  };
  if (std::none_of(order.begin(), order.end(), is_narrow_product)) return sink;
  const std::vector<int32_t> uses = count_uses(order);
  return rebuild_with_origins(order, [&](UOp u, UOps& src, const MemoScope& made) {
    if (!is_narrow_product(u) || uses[u.src(0).id()] != 1 || uses[u.src(0).src(0).id()] != 1) return;
    UOp product = u.src(0).src(0);
    auto widened = [&](UOp factor) { return made.get(factor).cast(product.dtype()).cast(u.dtype()); };
    src[0] = UOp::alu(Ops::MUL, {widened(product.src(0)), widened(product.src(1))});
  });
}
/// Rewrites comparisons of x with 0 to compare relu(x) where that exists and x is used for nothing else, so that x need
/// not be stored for a gradient.
UOp reuse_relu_mask(UOp sink) {
  const UOps order = sink.toposort();
  const std::vector<int32_t> uses = count_uses(order);
  auto is_zero = [](UOp u) { return u.is_const() && !u.is_invalid() && u.const_float() == 0; };
  std::unordered_map<UOp, UOp> relu_of;  // by the comparison
  for (UOp u : order) {
    if (!u.is(Ops::WHERE) || !u.src(0).is(Ops::CMPLT)) continue;
    UOp c = u.src(0), x = u.src(1);
    bool is_relu = c.src(1) == x && is_zero(c.src(0)) && is_zero(u.src(2));
    if (is_relu && uses[x.id()] == 2 && uses[c.id()] > 1 && !x.in(Ops::PARAM | Ops::AFTER | Ops::CONTIGUOUS))
      relu_of[c] = u;
  }
  if (relu_of.empty()) return sink;
  return rebuild_with_origins(order, [&](UOp u, UOps& src, const MemoScope&) {
    for (uint32_t i = 0; i < u.nsrc(); i++) {
      const auto it = relu_of.find(u.src(i));
      if (it == relu_of.end() || it->second == u) continue;
      UOp c = src[i], relu = UOp::alu(Ops::WHERE, {c, c.src(1), it->second.src(2)});
      src[i] = UOp::alu(Ops::CMPLT, {c.src(0), relu});
    }
  });
}
}  // namespace

bool is_whole_buffer(UOp u) {
  while (u.in(Ops::RESHAPE | Ops::AFTER)) u = u.src(0);
  return u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal;
}

UOp early_rewrites(UOp sink, const ScheduleOptions& options) {
  const EarlyContext context = context_of(sink, options);
  if (!options.round_products) sink = widen_products(sink);
  return reuse_relu_mask(graph_rewrite(sink, early_rules(), context, {.name = "early rewrites"}));
}

}  // namespace tg
