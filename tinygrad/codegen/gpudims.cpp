/// \file Lowering of grid ranges.
#include "tinygrad/codegen/gpudims.h"

#include <algorithm>

#include "tinygrad/codegen/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
AxisType type_of(UOp r) { return r.arg<RangeArg>().type; }
bool is_group(UOp r) { return r.is(Ops::RANGE) && type_of(r) == AxisType::kGroupReduce; }
bool is_local(UOp r) { return r.is(Ops::RANGE) && (type_of(r) == AxisType::kLocal || type_of(r) == AxisType::kWarp); }
bool is_global(UOp r) { return r.is(Ops::RANGE) && type_of(r) == AxisType::kGlobal; }

/// REDUCE(v, loops..., group...) as a partial reduce per thread and a reduce over the group's memory.
UOp lower_groups(UOp sink) {
  MemoScope memo;
  UOps src, groups;
  int64_t slots = 0;
  int32_t fresh = 0;
  for (UOp u : sink.toposort()) {
    src.clear();
    bool changed = false;
    for (UOp s : u.srcs()) {
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    UOp v = changed ? u.with_srcs(src) : u;
    if (u.is(Ops::REDUCE) && std::any_of(u.srcs().begin() + 1, u.srcs().end(), is_group)) {
      UOps own{src[0]}, across;
      for (size_t i = 1; i < u.nsrc(); i++) (is_group(u.src(i)) ? across : own).push_back(u.src(i));
      UOp partial = own.size() == 1 ? src[0] : UOp::make(Ops::REDUCE, u.dtype(), own, u.arg());
      // One element per thread of the group and per register instance.
      UOps axes;
      for (UOp r : ranges_of(partial))
        if (is_local(r) || is_group(r) || type_of(r) == AxisType::kUpcast || type_of(r) == AxisType::kUnroll)
          axes.push_back(r);
      for (UOp r : across)
        if (std::find(axes.begin(), axes.end(), r) == axes.end()) axes.push_back(r);  // the value may not depend on it
      int64_t size = 1;
      UOp put, get;
      UOps over;
      for (size_t i = axes.size(); i-- > 0;) {
        UOp r = axes[i], other = r;
        if (std::find(across.begin(), across.end(), r) != across.end()) {
          other = UOp::range(r.src(0), RangeArg{{2000 + fresh++}, AxisType::kReduce});
          over.push_back(other);
          groups.push_back(r);
        }
        auto add = [&](UOp sum, UOp x) {
          UOp t = fold_mul(x, size);
          return sum ? fold_add(sum, t) : t;
        };
        put = add(put, r);
        get = add(get, other);
        size *= static_cast<int64_t>(r.src(0).const_int());
      }
      UOp buffer = UOp::make(Ops::BUFFER, u.dtype(), {UOp::shape_stack(std::vector<int64_t>{size})},
                             Arg(ParamArg{slots++, AddrSpace::kLocal, "", "", 0, 0}));
      // In a loop, all must have read what the iteration before has left.
      UOps around;
      for (UOp r : ranges_of(u))
        if (type_of(r) == AxisType::kReduce || type_of(r) == AxisType::kLoop) around.push_back(r);
      UOp empty = around.empty() ? buffer : buffer.after({UOp::make(Ops::BARRIER, dtypes::void_, around)});
      UOp barrier = UOp::make(Ops::BARRIER, dtypes::void_, {empty.index({put}).store(partial)});
      UOps r{buffer.after({barrier}).index({get}).load()};
      r.insert(r.end(), over.begin(), over.end());
      v = UOp::make(Ops::REDUCE, u.dtype(), r, u.arg());
    }
    memo.set(u, v);
  }
  UOp out = memo.get(sink);
  if (groups.empty()) return out;
  // The threads of a group all have the result: the first one stores it.
  UOp first;
  for (UOp g : groups) {
    UOp is = UOp::alu(Ops::CMPLT, {g, UOp::constant(int64_t{1})});
    first = first ? (first == is ? first : first & is) : is;
  }
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp e : out.srcs()) {
    UOp store = e.is(Ops::END) ? e.src(0) : e, index = store.src(0);
    UOps s(store.srcs().begin(), store.srcs().end());
    s[0] = UOp::make(Ops::INDEX, index.dtype(), {index.src(0), index.src(1).valid(first)});
    map.push_back({store, store.with_srcs(s)});
  }
  return out.substitute(map);
}
}  // namespace

UOp add_grid(UOp sink) {
  UOps global, local;
  for (UOp u : sink.toposort()) {
    if (is_global(u)) global.push_back(u);
    else if (is_local(u) || is_group(u)) local.push_back(u);
  }
  if (global.empty() && local.empty()) return sink;
  std::sort(global.begin(), global.end(), nests_before);
  std::sort(local.begin(), local.end(), nests_before);
  sink = lower_groups(sink);
  std::vector<std::pair<UOp, UOp>> map;
  for (UOps* list : {&global, &local}) {
    const std::string prefix = list == &global ? "gidx" : "lidx";
    // The innermost range is dimension 0, along which neighbouring threads run.
    for (size_t i = 0; i < list->size(); i++) {
      UOp r = (*list)[list->size() - 1 - i];
      if (i < 2 || list->size() == 3) {
        map.push_back({r, UOp::make(Ops::SPECIAL, dtypes::weakint, {r.src(0)}, Arg(prefix + std::to_string(i)))});
        continue;
      }
      UOp total = UOp::constant(int64_t{1});
      for (size_t k = 0; k + 2 < list->size(); k++) total = total * (*list)[k].src(0);
      if (total.nsrc()) {
        int128 n = 1;
        bool known = true;
        for (size_t k = 0; k + 2 < list->size(); k++) {
          known &= (*list)[k].src(0).is_const();
          n *= known ? (*list)[k].src(0).const_int() : 1;
        }
        if (known) total = UOp::constant(ConstValue(n), dtypes::weakint);
      }
      UOp rest = UOp::make(Ops::SPECIAL, dtypes::weakint, {total}, Arg(prefix + "2"));
      for (size_t k = 0; k + 2 < list->size(); k++) {
        UOp d = (*list)[list->size() - 3 - k], n = d.src(0);
        map.push_back({d, k + 3 == list->size() ? rest : rest % n});
        rest = rest / n;
      }
      break;
    }
  }
  // Grid ranges are no loops: they leave the END lists.
  MemoScope memo;
  for (auto& [r, s] : map) memo.set(r, s);
  UOps src;
  for (UOp u : sink.toposort()) {
    if (memo.has(u)) continue;
    src.clear();
    bool changed = false;
    for (uint32_t i = 0; i < u.nsrc(); i++) {
      UOp s = u.src(i);
      if (u.is(Ops::END) && i > 0 && (is_global(s) || is_local(s) || is_group(s))) {
        changed = true;
        continue;
      }
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    if (u.is(Ops::END) && src.size() == 1) memo.set(u, src[0]);
    else memo.set(u, changed ? fold(u.op(), u.dtype(), src, u.arg(), u.tag()) : u);
  }
  return memo.get(sink);
}

}  // namespace tg
