/// \file Variables: PARAMs of no memory. A bound one is AFTER(variable, STORE(variable, number)).
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

inline bool is_variable(UOp u) { return u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kAlu; }
inline bool is_bound(UOp u) {
  return u.is(Ops::AFTER) && u.nsrc() == 2 && is_variable(u.src(0)) && u.src(1).is(Ops::STORE) &&
         u.src(1).src(1).is_const();
}
/// Returns the number a variable is bound to.
inline UOp value_of_bound(UOp bound) { return bound.src(1).src(1); }

}  // namespace tg
