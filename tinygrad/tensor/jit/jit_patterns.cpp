/// \file Views with storage and variables replaced by parameters.
#include "tinygrad/tensor/jit/jit_patterns.h"

#include <algorithm>

#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/rewrite.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/variables.h"

namespace tg::tensor_detail {

bool is_whole(UOp p) { return p.is(Ops::PARAM); }
bool is_pattern_of(UOp p, UOp b) {
  return p.is(Ops::PARAM) && p.dtype() == b.dtype() && p.src(0) == b.src(0) &&
         p.arg<ParamArg>().device == b.arg<ParamArg>().device;
}

namespace {
/// Returns an expression without the values of its variables, on which the order of operands depends.
UOp unbound(UOp u, const std::vector<std::pair<UOp, UOp>>& map) {
  return graph_rewrite(u.substitute(map), canonical_order(), {.name = "pattern of an argument"});
}
int64_t value_of(UOp bound) { return static_cast<int64_t>(value_of_bound(bound).const_int()); }
UOp storage_param(UOp buffer, UOp dims) {
  return UOp::make(Ops::PARAM, buffer.dtype(), {dims},
                   ParamArg{0, AddrSpace::kGlobal, buffer.arg<ParamArg>().device, "", 0, 0});
}
}  // namespace

void append_bound_values(UOp expression, BoundValues* out) {
  for (UOp u : expression.toposort())
    if (is_bound(u)) out->emplace_back(u.src(0).arg<ParamArg>().name, value_of(u));
}

std::string unbound_text(UOp u) {
  std::string out;
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp v : u.toposort())
    if (is_bound(v)) {
      const ParamArg& p = v.src(0).arg<ParamArg>();
      out += str(out.empty() ? "" : ", ", p.name, " from ", p.vmin, " to ", p.vmax);
      map.emplace_back(v, v.src(0));
    }
  return is_bound(u) ? out : str("expression ", unbound(u, map).key().to_hex().substr(0, 8), " of ", out);
}

UOp buffer_below(UOp u) {
  u = below_views(u);
  return u.is(Ops::BUFFER) ? u : UOp();
}

UOp view_pattern(UOp u, BoundValues* values) {
  UOp b = buffer_below(u), p = storage_param(b, b.src(0));
  if (u == b) return p;
  std::vector<std::pair<UOp, UOp>> map{{b, p}};
  for (UOp v : u.toposort())
    if (is_bound(v)) {
      map.emplace_back(v, v.src(0));
      if (values) values->emplace_back(v.src(0).arg<ParamArg>().name, value_of(v));
    }
  return as_public(unbound(u, map));  // compared with those of other calls
}

UOp input_pattern(UOp view) {
  const UOp b = buffer_below(view);
  UOps chain;
  for (UOp u = view; u != b; u = u.src(0))
    if (!u.is(Ops::DETACH)) chain.push_back(u);
  if (std::all_of(chain.begin(), chain.end(), [](UOp u) { return u.is(Ops::RESHAPE) && !shape_of(u).symbolic(); }))
    return storage_param(b, chain.empty() ? b.src(0) : chain[0].src(1));
  UOp r = b;
  r = over_base(chain, r);
  return view_pattern(r, nullptr);
}

}  // namespace tg::tensor_detail
