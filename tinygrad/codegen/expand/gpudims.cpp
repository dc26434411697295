/// \file Lowering of grid ranges.
#include "tinygrad/codegen/expand/gpudims.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/scratch/lower_stage.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/target/gpu_figures.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
bool is_group(UOp r) { return is_range(r, AxisType::kGroupReduce); }
bool is_local(UOp r) { return is_range(r, AxisType::kLocal) || is_range(r, AxisType::kWarp); }
bool is_global(UOp r) { return is_range(r, AxisType::kGlobal); }
bool is_local_or_group(UOp r) { return is_local(r) || is_group(r); }

/// Returns the smallest step between what neighbours along one of `ranges` read.
int64_t smallest_step(const UOps& order, const UOps& ranges) {
  int64_t least = INT64_MAX;
  for (UOp u : order) {
    if (!u.is(Ops::LOAD) || !u.src(0).is(Ops::INDEX) || !u.src(0).src(0).is(Ops::PARAM)) continue;
    const AffineIndex index(u.src(0).src(1));
    for (UOp r : ranges) {
      const bool clamped = std::any_of(index.rest.begin(), index.rest.end(), [&](UOp x) { return depends_on(x, r); });
      if (const int64_t k = clamped ? 1 : std::abs(index.coefficient(r))) least = std::min(least, k);
    }
  }
  return least;
}

/// Returns the ranges of a workgroup's threads, outermost first: threads that share a sum are neighbours, but where
/// memory runs along results instead.
UOps threads_of(UOp sink) {
  const UOps order = sink.toposort();
  UOps local, group;
  for (UOp u : order)
    if (is_local_or_group(u)) (is_group(u) ? group : local).push_back(u);
  std::sort(local.begin(), local.end(), nests_before);
  std::sort(group.begin(), group.end(), nests_before);
  // The threads of a row of attention are neighbours: matrix instructions know them by their numbers.
  const bool across = !local.empty() && !group.empty() && !sink.arg<KernelInfo>().attention &&
                      smallest_step(order, local) < smallest_step(order, group);
  UOps& outer = across ? group : local;
  const UOps& inner = across ? local : group;
  outer.insert(outer.end(), inner.begin(), inner.end());
  return outer;
}

/// Returns those of a group's ranges that are the lowest bits of the numbers of its threads, the innermost first, as
/// far as threads of one warp differ in them alone: all sizes are powers of two.
UOps ranges_of_warp(const UOps& threads, const Target& target) {
  const int64_t warp = gpu_figures(target).warp;
  UOps out;
  int64_t n = 1;
  for (size_t i = threads.size(); i-- > 0;) {
    const int64_t size = constant_size(threads[i]);
    if (size <= 0 || !std::has_single_bit(static_cast<uint64_t>(size)) || (n *= size) > warp) break;
    out.push_back(threads[i]);
  }
  return out;
}

/// The threads of a workgroup, and how they combine what each has.
struct GroupReduce {
  const Target& target;
  KernelContext& names;
  UOps threads;  ///< ranges, outermost first

  /// Combines the values of the threads of a warp that differ in one of `across`; what is left of these stays in it.
  UOp by_shuffles(UOp reduce, UOp value, UOps& across) const {
    const int bytes = reduce.dtype().itemsize();
    if (!target.has("shuffles") || (bytes != 4 && bytes != 8)) return value;
    int64_t bit = 1;
    for (UOp r : ranges_of_warp(threads, target)) {
      const int64_t end = bit * constant_size(r);
      if (!contains(across, r)) {
        bit = end;
        continue;
      }
      for (; bit < end; bit *= 2)
        value =
            UOp::alu(reduce.arg<ReduceArg>().op, {value, UOp::make(Ops::CUSTOMI, value.dtype(), {value}, Arg(bit))});
      std::erase(across, r);
    }
    return value;
  }
};

/// Returns a reduce over `across` of the partial results of the threads of a workgroup: within a warp by shuffles, the
/// rest through memory, where one element per thread, or warp, and per register instance is staged.
UOp reduce_across(UOp reduce, UOp partial, UOps across, const GroupReduce& group) {
  KernelContext& names = group.names;
  const UOps all = across;
  partial = group.by_shuffles(reduce, partial, across);
  if (across.empty()) return partial;
  UOps over, loops;
  for (UOp r : ranges_of(partial))
    if ((is_local_or_group(r) && (!contains(all, r) || contains(across, r))) || is_unrolled(r)) over.push_back(r);
  for (UOp r : across) add_once(over, r);  // the value may not depend on it
  UOps at = over;
  for (size_t i = over.size(); i-- > 0;) {
    if (!contains(across, over[i])) continue;
    at[i] = names.range(over[i].src(0), AxisType::kReduce);
    loops.push_back(at[i]);
  }
  UOps src{stage(StageKind::kPartial, partial, over, at)};
  src.insert(src.end(), loops.begin(), loops.end());
  return UOp::make(Ops::REDUCE, reduce.dtype(), src, reduce.arg());
}

/// Makes threads store results only where `gate_of` the loops of a store holds; empty: everywhere.
template <class F> UOp store_only_where(UOp sink, F&& gate_of) {
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp e : sink.srcs()) {
    const UOp gate = gate_of(e.is(Ops::END) ? e.srcs().subspan(1) : std::span<const UOp>());
    if (!gate) continue;
    UOp store = e.is(Ops::END) ? e.src(0) : e, index = store.src(0);
    UOps s(store.srcs().begin(), store.srcs().end());
    s[0] = UOp::make(Ops::INDEX, index.dtype(), {index.src(0), index.src(1).valid(gate)});
    map.push_back({store, store.with_srcs(s)});
  }
  return sink.substitute(map);
}

/// Rewrites REDUCE(v, loops..., group...) to a partial reduce per thread and a reduce over the group's memory.
UOp lower_groups(UOp sink, const Target& target, KernelContext& names) {
  UOps groups;
  const GroupReduce group{target, names, threads_of(sink)};
  UOp out = translate(sink, [&](UOp u, const UOps& src) {
    if (!u.is(Ops::REDUCE) || std::none_of(u.srcs().begin() + 1, u.srcs().end(), is_group)) return same_or_with(u, src);
    UOps own{src[0]}, across;
    for (UOp r : u.srcs().subspan(1)) (is_group(r) ? across : own).push_back(r);
    for (UOp r : across) add_once(groups, r);
    UOp partial = own.size() == 1 ? src[0] : UOp::make(Ops::REDUCE, u.dtype(), own, u.arg());
    // Without shuffles all threads read what they combine: dimension by dimension they read less.
    if (target.has("shuffles") || across.size() == 1) return reduce_across(u, partial, across, group);
    for (size_t i = across.size(); i-- > 0;) partial = reduce_across(u, partial, {across[i]}, group);
    return partial;
  });
  if (groups.empty()) return out;
  // Where the threads of a group all have the result, the first one stores it.
  return store_only_where(lower_stages(out, names, target), [&](std::span<const UOp> loops) {
    UOp first;
    for (UOp g : groups) {
      if (contains(loops, g)) continue;
      UOp is = UOp::alu(Ops::CMPLT, {g, UOp::constant(int64_t{1})});
      first = first ? first & is : is;
    }
    return first;
  });
}
/// Returns the product of sizes, as a constant where all are.
UOp product_of_sizes(std::span<const UOp> ranges) {
  UOp total = UOp::constant(int64_t{1});
  int128 n = 1;
  bool known = true;
  for (UOp r : ranges) {
    total = total * r.src(0);
    known &= r.src(0).is_const();
    n *= known ? r.src(0).const_int() : 1;
  }
  return known ? UOp::constant(ConstValue(n), dtypes::weakint) : total;
}

/// Returns where to cut ranges, innermost first, into at most three dimensions: [0, first), [first, second) and the
/// rest. As many ranges as possible have a dimension of their own, the inner ones first. Empty where they do not fit.
std::optional<std::pair<size_t, size_t>> cut_dimensions(const UOps& ranges, const int64_t (&limit)[3]) {
  auto fits = [&](size_t begin, size_t end, int64_t most) {
    int128 n = 1;
    for (size_t i = begin; i < end && n <= most; i++) n *= vmax(ranges[i].src(0));
    return n <= most;
  };
  const size_t n = ranges.size();
  for (size_t first = 1; first <= n; first++)
    for (size_t second = std::min(first + 1, n); second <= n; second++)
      if (fits(0, first, limit[0]) && fits(first, second, limit[1]) && fits(second, n, limit[2]))
        return std::pair{first, second};
  return std::nullopt;
}

/// A range of the grid as a number of two digits, because no dimension is as long.
struct SplitRange {
  UOp range, number;
  bool padded;  ///< the number may be too large
};

/// Replaces ranges, innermost first, that are longer than `most` by two: of sizes that divide them, where there are.
std::vector<SplitRange> split_long_ranges(UOps& ranges, int64_t most, KernelContext& names) {
  std::vector<SplitRange> out;
  UOps kept;
  for (UOp r : ranges) {
    const auto n = static_cast<int64_t>(vmax(r.src(0)));
    if (n <= most) {
      kept.push_back(r);
      continue;
    }
    int64_t inner = r.src(0).is_const() ? most : 0;
    while (inner > 0 && n % inner) inner--;
    const bool padded = inner == 0 || n / inner > most;
    if (padded) inner = most;
    const UOp size = UOp::constant(inner);
    const UOp high = names.range((r.src(0) + ConstValue(inner - 1)) / size, AxisType::kGlobal),
              low = names.range(inner, AxisType::kGlobal);
    kept.push_back(low);
    kept.push_back(high);
    out.push_back({r, high * size + low, padded});
  }
  ranges = kept;
  return out;
}

/// Maps ranges, innermost first, to dimensions of the grid. The innermost range is dimension 0, along which
/// neighbouring threads run.
void add_dimensions(const UOps& ranges, const std::string& prefix, const int64_t (&limit)[3],
                    std::vector<std::pair<UOp, UOp>>* map) {
  const auto cut = cut_dimensions(ranges, limit);
  if (!cut) {
    std::string sizes;
    for (UOp r : ranges) sizes += (sizes.empty() ? "" : " x ") + str(static_cast<int64_t>(vmax(r.src(0))));
    throw ShapeError(str("[grid] got ", sizes, ", expected at most ", limit[0], " x ", limit[1], " x ", limit[2]));
  }
  const auto [first, second] = *cut;
  const size_t cuts[] = {0, first, second, ranges.size()};
  for (size_t d = 0; d < 3; d++) {
    const std::span<const UOp> own = std::span(ranges).subspan(cuts[d], cuts[d + 1] - cuts[d]);
    if (own.empty()) continue;
    UOp rest = UOp::make(Ops::SPECIAL, dtypes::weakint, {product_of_sizes(own)}, Arg(prefix + std::to_string(d)));
    for (size_t k = 0; k < own.size(); k++) {
      UOp size = own[k].src(0);
      map->push_back({own[k], k + 1 == own.size() ? rest : rest % size});
      if (k + 1 < own.size()) rest = rest / size;
    }
  }
}
}  // namespace

UOp add_grid(UOp sink, const Target& target, KernelContext& names) {
  UOps global, local = threads_of(sink);
  for (UOp u : sink.toposort())
    if (is_global(u)) global.push_back(u);
  if (global.empty() && local.empty()) return sink;
  std::sort(global.begin(), global.end(), nests_before);
  std::vector<std::pair<UOp, UOp>> map;
  std::reverse(global.begin(), global.end());
  std::reverse(local.begin(), local.end());
  std::vector<SplitRange> split;
  if (!global.empty() && !cut_dimensions(global, target.grid_limit))
    split = split_long_ranges(global, target.grid_limit[2], names);
  if (!global.empty()) add_dimensions(global, "gidx", target.grid_limit, &map);
  if (!local.empty()) add_dimensions(local, "lidx", target.group_limit, &map);
  sink = lower_groups(sink, target, names);
  for (const SplitRange& s : split) {
    const UOp number = s.number.substitute(map), size = s.range.src(0);
    const UOp inside = UOp::alu(Ops::CMPLT, {number, size});
    if (s.padded) sink = store_only_where(sink, [&](std::span<const UOp>) { return inside; });
    // Threads beyond the end read what the last one reads.
    map.push_back({s.range, s.padded ? inside.where(number, size + ConstValue(-1)) : number});
  }
  // Grid ranges are no loops: they leave the END lists.
  return translate(sink, [&](UOp u, UOps& src) {
    for (const auto& [r, dimension] : map)
      if (r == u) return dimension;
    if (u.is(Ops::END)) {
      UOps loops{src[0]};
      for (size_t i = 1; i < u.nsrc(); i++)
        if (!is_global(u.src(i)) && !is_local_or_group(u.src(i))) loops.push_back(src[i]);
      if (loops.size() == 1) return src[0];
      return UOp::make(Ops::END, u.dtype(), loops, u.arg(), u.tag());
    }
    return std::equal(src.begin(), src.end(), u.srcs().begin()) ? u : fold(u.op(), u.dtype(), src, u.arg(), u.tag());
  });
}

}  // namespace tg
