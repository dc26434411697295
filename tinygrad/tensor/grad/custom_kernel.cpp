/// \file User-defined kernels in tensor graphs: AFTER(storage, CALL(kernel, storage...)).
#include "tinygrad/schedule/custom.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/uop/multi.h"

namespace tg {
using namespace tensor_detail;

PreparedKernel prepare_kernel(const Tensors& buffers) {
  GraphScope g;
  TG_CHECK(ValueError, !buffers.empty(), "[custom_kernel] got no tensors, expected the buffers of the kernel");
  std::string device;
  for (const Tensor& t : buffers)
    if (device.empty()) device = device_of(uop_of(t, "custom_kernel"));
  if (device.empty()) device = buffers[0].device();
  PreparedKernel p;
  for (size_t i = 0; i < buffers.size(); i++) {
    UOp u = current_view(uop_of(buffers[i], "custom_kernel"));
    const std::string& d = device_of(u);
    TG_CHECK(DeviceError, d.empty() || d == device, "[custom_kernel] got a tensor on ", d, " among tensors on ", device,
             ", expected one device: move it with .to(device)");
    p.buffers.push_back(
        kernel_param(i, shard_shape(u), ops::strong_type(u)));  // sharded: each device runs it on its shard
    p.arguments.push_back(has_buffer_identity(u) ? u : materialize(u, device));
    if (UOp raw = buffers[i].uop(); raw != u)
      note_dropped(u, raw, Lost::kUnlessReached);  // the kernel reads storage, which is a leaf
  }
  return p;
}

Tensors apply_kernel(const PreparedKernel& prepared, UOp written, const NodeGradient& gradient) {
  OpScope s("custom_kernel");
  UOp sink = lower_user_kernel(written);
  UOps src{sink};
  src.insert(src.end(), prepared.arguments.begin(), prepared.arguments.end());
  CallInfo info{sink.arg<KernelInfo>().name, false, false, make_gradient(gradient), written_params(sink)};
  for (int32_t w : info.writes)
    TG_CHECK(IndexError, static_cast<size_t>(w) + 1 < src.size(), "[custom_kernel] got a store to parameter ", w,
             ", expected one of ", src.size() - 1);
  std::vector<int32_t> writes = info.writes;
  for (int32_t w : writes) src[static_cast<size_t>(w) + 1] = leave_read_only_memory(src[static_cast<size_t>(w) + 1]);
  UOp call = UOp::make(Ops::CALL, dtypes::void_, src, std::move(info));
  Tensors out, changed;
  for (size_t i = 1; i < src.size(); i++) out.push_back(Tensor::from_uop(src[i]));
  for (int32_t w : writes) {
    auto i = static_cast<size_t>(w);
    out[i] = Tensor::from_uop(src[i + 1].after({call}));
    changed.push_back(out[i]);
  }
  for (const Tensor& t : changed) s(t);
  return out;
}

Tensors custom_kernel(const Tensors& buffers, const KernelFunction& kernel, const NodeGradient& gradient) {
  OpScope s;
  TG_CHECK(ValueError, kernel, "[custom_kernel] got no function, expected one of UOps that returns a SINK");
  PreparedKernel p = prepare_kernel(buffers);
  return apply_kernel(p, kernel(UOps(p.buffers.begin(), p.buffers.end())), gradient);
}

}  // namespace tg
