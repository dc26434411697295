/// \file libamdhip64.so.6, faked.
#include <cstring>
#include <mutex>
#include <set>

#include "fake_driver/fake_gpu.h"
#include "tinygrad/runtime/hip_driver.h"

namespace tg::fake {

const Face kFace{
    .attributes = {56, 26, 27, 28, 29, 30, 31, 74, 75, 63, 19, 23, 61, 88},
    .values = {1024, 1024, 1024, 1024, 2147483647, 65535, 65535, 64 << 10, 64 << 10, 304, 4 << 20, 9, 4, 1},
    .shared_opt_in = false,
    .keeps_running_graphs = false};

namespace {
int set_device(int device) {
  // Devices are open from the first time on that they are current.
  static std::mutex mutex;
  static std::set<int> opened;
  std::lock_guard lock(mutex);
  if (opened.insert(device).second)
    if (const int error = open_context(device)) return error;
  return set_current(device);
}
int properties(void* out, int) {
  std::memset(out, 0, sizeof(HipProperties));
  std::strcpy(static_cast<HipProperties*>(out)->arch, "gfx942:sramecc+:xnack-");
  return 0;
}
int enable_peer(int peer, unsigned) { return enable_peer_access(peer); }
int copy_peer(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream) {
  return copy_between(to, to_device, from, from_device, bytes, stream);
}
GpuLaunch launch_of(const HipKernelNode& n) {
  return {n.function,
          {n.grid[0], n.grid[1], n.grid[2]},
          {n.block[0], n.block[1], n.block[2]},
          n.shared_bytes,
          n.parameters};
}
int add_kernel(void** node, void* graph, void* const* after, size_t count, const HipKernelNode* kernel) {
  return add_kernel_node(node, graph, after, count, launch_of(*kernel));
}
int set_kernel(void* executable, void* node, const HipKernelNode* kernel) {
  return set_kernel_node(executable, node, launch_of(*kernel));
}
int add_copy(void** node, void* graph, void* const* after, size_t count, void* to, const void* from, size_t bytes,
             int kind) {
  if (kind != 3) return violation("a copy in a graph that is not within the device");
  return add_copy_node(node, graph, after, count, to, from, bytes);
}
int set_copy(void* executable, void* node, void* to, const void* from, size_t bytes, int kind) {
  if (kind != 3) return violation("a copy in a graph that is not within the device");
  return set_copy_node(executable, node, to, from, bytes);
}
}  // namespace
}  // namespace tg::fake

extern "C" {
using namespace tg;
#define ENTRY(member, parameters, names, cuda, hip)              \
  __attribute__((visibility("default"))) int hip parameters {    \
    return fake::call(#hip, [&] { return fake::member names; }); \
  }
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY
#define ENTRY(member, parameters, names, symbol)                    \
  __attribute__((visibility("default"))) int symbol parameters {    \
    return fake::call(#symbol, [&] { return fake::member names; }); \
  }
#include "tinygrad/runtime/hip_entry_points.inc"
#undef ENTRY
}
