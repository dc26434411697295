/// \file libcuda.so.1, faked.
#include "fake_driver/fake_gpu.h"
#include "tinygrad/runtime/cuda_driver.h"

namespace tg::fake {

const Face kFace{
    .attributes = {1, 2, 3, 4, 5, 6, 7, 8, 97, 16, 38, 75, 76, 115},
    .values = {1024, 1024, 1024, 64, 2147483647, 65535, 65535, 48 << 10, 227 << 10, 132, 50 << 20, 9, 0, 1},
    .shared_opt_in = true,
    .keeps_running_graphs = true};

namespace {
/// The handle of a device's context, and back.
void* context_of(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(0xc0de0000 + device)); }
int device_of(void* context) {
  return context ? static_cast<int>(reinterpret_cast<intptr_t>(context) - 0xc0de0000) : -1;
}

int retain_context(void** context, int device) {
  *context = context_of(device);
  return open_context(device);
}
int release_context(int device) { return close_context(device); }
int set_context(void* context) { return set_current(device_of(context)); }
int enable_peer(void* peer, unsigned) { return enable_peer_access(device_of(peer)); }
int copy_peer(void* to, void* to_context, void* from, void* from_context, size_t bytes, void* stream) {
  return copy_between(to, device_of(to_context), from, device_of(from_context), bytes, stream);
}
int set_function_attribute(void* function, int attribute, int value) {
  constexpr int kDynamicSharedBytes = 8;
  return attribute == kDynamicSharedBytes ? allow_dynamic_shared(function, value) : 1;
}
/// Takes what kernels here ask for: two dimensions, rows of 128 bytes whose parts are exchanged, zeros outside.
int encode_map(void* map, int type, unsigned rank, void* address, const uint64_t* size, const uint64_t* strides,
               const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
  constexpr int kSwizzle128 = 3, kMostPromotion = 3;
  if (type < 0 || type > 2 || rank != 2 || interleave != 0 || swizzle != kSwizzle128 || promotion > kMostPromotion ||
      fill != 0 || steps[0] != 1 || steps[1] != 1)
    return violation("a tensor map of another form than kernels here use");
  const TensorMap form{.itemsize = 1 << type,
                       .width = static_cast<int64_t>(size[0]),
                       .height = static_cast<int64_t>(size[1]),
                       .box_width = box[0],
                       .box_height = box[1]};
  if (strides[0] != size[0] << type) return violation("a tensor map whose rows do not follow each other");
  if (!is_possible(form)) return violation("a tensor map that the device does not take: " + form.text());
  return make_map(map, form, address);
}
GpuLaunch launch_of(const CudaKernelNode& n) {
  return {n.function,
          {n.grid[0], n.grid[1], n.grid[2]},
          {n.block[0], n.block[1], n.block[2]},
          n.shared_bytes,
          n.parameters};
}
/// Whether it is a copy of one row between two places of the device.
bool is_row(const CudaCopyNode& c) {
  const auto is_plain = [&](const CudaCopyPlace& p) {
    return p.x + p.y + p.z + p.level == 0 && p.memory_type == 2 && !p.host && !p.array && !p.reserved &&
           p.pitch >= c.width && p.height >= c.height;
  };
  return is_plain(c.from) && is_plain(c.to) && c.height == 1 && c.depth == 1;
}
int add_kernel(void** node, void* graph, void* const* after, size_t count, const CudaKernelNode* kernel) {
  return add_kernel_node(node, graph, after, count, launch_of(*kernel));
}
int set_kernel(void* executable, void* node, const CudaKernelNode* kernel) {
  return set_kernel_node(executable, node, launch_of(*kernel));
}
int add_copy(void** node, void* graph, void* const* after, size_t count, const CudaCopyNode* copy, void*) {
  if (!is_row(*copy)) return violation("a copy in a graph that is not one row");
  return add_copy_node(node, graph, after, count, copy->to.device, copy->from.device, copy->width);
}
int set_copy(void* executable, void* node, const CudaCopyNode* copy, void*) {
  if (!is_row(*copy)) return violation("a copy in a graph that is not one row");
  return set_copy_node(executable, node, copy->to.device, copy->from.device, copy->width);
}
}  // namespace
}  // namespace tg::fake

// NOLINTBEGIN: names of the vendor
extern "C" {
using namespace tg;
#define ENTRY(member, parameters, names, cuda, hip)               \
  __attribute__((visibility("default"))) int cuda parameters {    \
    return fake::call(#cuda, [&] { return fake::member names; }); \
  }
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY
#define ENTRY(member, parameters, names, symbol)                    \
  __attribute__((visibility("default"))) int symbol parameters {    \
    return fake::call(#symbol, [&] { return fake::member names; }); \
  }
#include "tinygrad/runtime/cuda_entry_points.inc"
#undef ENTRY
}
// NOLINTEND
