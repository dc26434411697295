/// \file Which operands can be staged, and the parts of STAGE nodes.
#include "tinygrad/codegen/scratch/stage.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
bool is_kind(UOp u, StageKind kind) { return u.is(Ops::STAGE) && u.arg<StageArg>().use == kind; }

/// True for values in memory order that no reduce and no other scratch memory goes into.
bool reads_memory_alone(UOp value) {
  bool loads = false;
  for (UOp u : value.toposort()) {
    if (u.in(Ops::REDUCE | Ops::AFTER)) return false;
    loads |= u.is(Ops::LOAD);
  }
  return loads;
}

}  // namespace

UOps stageable(UOp sink) {
  UOps out;
  auto add = [&](UOp v) {
    if (!v.dtype().is_weak() && !v.dtype().is_bool() && !ranges_of(v).empty() && !contains(out, v) &&
        reads_memory_alone(v))
      out.push_back(v);
  };
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || u.arg<ReduceArg>().op != Ops::ADD) continue;
    UOp v = u.src(0);
    if (v.is(Ops::WHERE) && v.src(2).is_const() && v.src(2).const_float() == 0) v = v.src(1);
    if (!v.in(Ops::MUL | Ops::WMMA)) continue;
    add(v.src(0));
    add(v.src(1));
  }
  return out;
}

UOp stage(StageKind kind, UOp value, const UOps& over, const UOps& coordinates) {
  UOps src{value};
  src.insert(src.end(), over.begin(), over.end());
  UOps at{UOp::make(Ops::STAGE, value.dtype(), src, Arg(StageArg{.addrspace = AddrSpace::kLocal, .use = kind}))};
  at.insert(at.end(), coordinates.begin(), coordinates.end());
  if (coordinates.empty()) at.push_back(UOp::constant(int64_t{0}));  // one element
  return UOp::make(Ops::INDEX, value.dtype(), at).load();
}

StageRead::StageRead(UOp load)
    : stage(load.src(0).src(0)),
      value(stage.src(0)),
      over(stage.srcs().begin() + 1, stage.srcs().end()),
      coordinates(load.src(0).srcs().begin() + 1, load.src(0).srcs().end()) {}

bool reads_stage(UOp u) { return u.is(Ops::LOAD) && u.src(0).is(Ops::INDEX) && u.src(0).src(0).is(Ops::STAGE); }

bool is_shared_product(UOp u) { return u.is(Ops::WMMA) && u.nsrc() == 5; }

bool is_matrix_in_memory(UOp u) {
  // A shuffle of a number of 64 bits has an integer.
  return u.is(Ops::CUSTOMI) && u.arg_kind() == ArgKind::kString && u.dtype() == dtypes::uint64 &&
         u.src(0).is(Ops::LOAD);
}

bool is_window(UOp u) { return is_kind(u, StageKind::kWindow); }

UOp reused_memory(UOp index) {
  UOp base = index.src(0);
  while (base.is(Ops::AFTER)) base = base.src(0);
  return base.is(Ops::BUFFER) && base.arg<ParamArg>().addrspace == AddrSpace::kLocal ? base : UOp();
}

}  // namespace tg
