/// \file Rebuilding private nodes as public ones.
#include "tinygrad/uop/owner.h"

#include "tinygrad/uop/rebuild.h"

namespace tg {

UOp as_public(UOp root) {
  const uint64_t before = set_owner(0);
  const UOp out = translate(root, [](UOp u, const UOps& src) {
    return owner_of(u) || !has_srcs(u, src) ? UOp::make(u.op(), u.dtype(), src, u.arg(), mark_of(u)) : u;
  });
  set_owner(before);
  return out;
}

}  // namespace tg
