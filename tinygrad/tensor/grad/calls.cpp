/// \file Pending expressions and decoded frames as calls.
#include "tinygrad/tensor/grad/calls.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Whether a value contains a write: calls compute values, they do not move writes.
bool has_effects(UOp u) {
  const UOps all = u.toposort();
  return std::any_of(all.begin(), all.end(),
                     [](UOp n) { return n.in(Ops::STORE | Ops::CALL) && !n.src(0).is(Ops::PARAM); });
}
}  // namespace

void callify(const Tensors& tensors) {
  OpScope s;
  Tensors pending;
  UOps values;
  for (const Tensor& t : tensors) {
    UOp u = current_view(uop_of(t, "callify"));
    if (device_of(u).empty() || has_buffer_identity(u) || has_effects(u) || contains(values, u)) continue;
    pending.push_back(t);
    values.push_back(u);
  }
  if (values.empty()) return;
  UOp call = make_function(values, {}, {"callify", true, true, nullptr, {}});
  for (size_t i = 0; i < pending.size(); i++) set_uop(*pending[i].impl(), get_tuple(call, i));
}

Tensor decode_hevc_frame(const Tensor& chunk, const BoundVariable& frame_pos, const Shape& shape, const Tensor& state,
                         const Tensors& ref_frames) {
  return decode_hevc_frame(chunk, frame_pos.uop(), shape, state, ref_frames);
}
Tensor decode_hevc_frame(const Tensor& chunk, UOp frame_pos, const Shape& shape, const Tensor& state,
                         const Tensors& ref_frames) {
  OpScope s;
  UOp data = uop_of(chunk, "decode_hevc_frame");
  TG_CHECK(ValueError,
           frame_pos.is(Ops::AFTER) && frame_pos.nsrc() == 2 && frame_pos.src(1).is(Ops::STORE) &&
               frame_pos.src(1).src(1).is_const(),
           "[decode_hevc_frame] got frame_pos ", SInt(frame_pos),
           ", expected a bound variable: Variable(name, 0, frames).bind(number)");
  TG_CHECK(ShapeError, !shape.empty() && !shape.symbolic() && shape.numel() > 0, "[decode_hevc_frame] got shape ",
           shape, ", expected the sizes of a frame");
  TG_CHECK(DTypeError, !data.dtype().is_weak(), "[decode_hevc_frame] got ", data.dtype(), ", expected bytes");
  const std::string device = chunk.device();
  UOps src{Tensor::empty(shape, {.dtype = data.dtype(), .device = device}).uop(), chunk.contiguous().uop(),
           state.contiguous().uop()};
  for (const Tensor& r : ref_frames) {
    TG_CHECK(ShapeError, r.shape() == shape, "[decode_hevc_frame] got a reference frame of shape ", r.shape(),
             ", expected ", shape);
    src.push_back(r.contiguous().uop());
  }
  for (size_t i = 1; i < src.size(); i++)
    TG_CHECK(DeviceError, device_of(src[i]).empty() || device_of(src[i]) == device,
             "[decode_hevc_frame] got a tensor on ", device_of(src[i]), " for a frame on ", device,
             ": move it with .to(device)");
  src.push_back(frame_pos);
  UOp out = src[0];
  return s(out.after({UOp::make(Ops::CUSTOM_FUNCTION, dtypes::void_, src, std::string("encdec"))}));
}

}  // namespace tg
