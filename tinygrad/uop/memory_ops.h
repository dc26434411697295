/// \file LOAD and STORE by the names of their parts, and the storage they reach.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// True for a LOAD of a kernel, for a STORE of one.
inline bool is_load(UOp u) { return u.is(Ops::LOAD) && u.src(0).is(Ops::INDEX); }
inline bool is_store(UOp u) { return u.is(Ops::STORE) && u.src(0).is(Ops::INDEX); }

/// LOAD(INDEX(buffer, index)), LOAD(INDEX(buffer, index), alt, gate), STORE(INDEX(buffer, index), value) or
/// STORE(INDEX(buffer, index), value, gate).
struct MemRef {
  UOp op;
  UOp at() const { return op.src(0); }             ///< the INDEX
  UOp buffer() const { return op.src(0).src(0); }  ///< PARAM, BUFFER or an AFTER of one
  UOp index() const { return op.src(0).src(1); }
  UOp gate() const { return op.nsrc() == 3 ? op.src(2) : UOp(); }                     ///< empty: none
  UOp alt() const { return op.is(Ops::LOAD) && op.nsrc() == 3 ? op.src(1) : UOp(); }  ///< where the gate is off
  UOp value() const { return op.is(Ops::STORE) ? op.src(1) : op; }                    ///< what is moved
};

/// Returns the PARAM or BUFFER behind an INDEX and its AFTERs.
inline UOp storage_of(UOp u) {
  while (u.in(Ops::INDEX | Ops::AFTER)) u = u.src(0);
  return u;
}
/// True for a PARAM that is an image, of shape (height, width, 4). LOAD(INDEX(image, y, x)) are the numbers of a pixel,
/// as float32 and each by a GETTUPLE; outside of the image they are 0. STORE(INDEX(image, y, x), four numbers...)
/// writes a pixel. Both may have a gate.
inline bool is_image(UOp storage) { return storage.is(Ops::PARAM) && storage.nsrc() && storage.src(0).nsrc() == 3; }
inline bool is_pixel_access(UOp u) {
  return u.in(Ops::LOAD | Ops::STORE) && u.src(0).is(Ops::INDEX) && is_image(u.src(0).src(0));
}
/// Returns what a STORE writes: one value, the four numbers of a pixel.
inline std::span<const UOp> stored_values(UOp store) { return store.srcs().subspan(1, is_pixel_access(store) ? 4 : 1); }
inline bool is_buffer_in(UOp storage, AddrSpace space) {
  return storage.is(Ops::BUFFER) && storage.arg<ParamArg>().addrspace == space;
}
/// True for accesses and INDEXes of registers.
inline bool is_register(UOp u) { return is_buffer_in(storage_of(u), AddrSpace::kReg); }
/// Makes the storage a kernel has for itself: registers (kReg) or scratch memory (kLocal).
inline UOp kernel_buffer(DType d, int64_t size, int64_t slot, AddrSpace space) {
  return UOp::make(Ops::BUFFER, d, {UOp::shape_stack(std::vector<int64_t>{size})},
                   Arg(ParamArg{.slot = slot, .addrspace = space}));
}

}  // namespace tg
