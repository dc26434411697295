/// \file Fake GPUs: what CUDA's driver and HIP do, over host memory, checking how they are used. Streams are threads;
/// kernels are interpreted. Functions return the errors of the drivers; misuse that a real device would not always
/// punish is noted as a violation, which fails the process at its end.
///
/// What is checked: handles that are none, or no more; memory used before it is allocated, behind its end, when it was
/// freed; commands of two streams that touch the same bytes in no order; memory, modules and graphs released while
/// commands may use them; events and streams of another device than the current one; launches that do not fit the
/// kernel.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "fake_driver/fake_control.h"
#include "tinygrad/runtime/gpu_driver.h"

namespace tg::fake {

/// What one vendor's driver has otherwise than the other's.
struct Face {
  int attributes[static_cast<int>(GpuAttribute::kCount)];  ///< the numbers of questions,
  int values[static_cast<int>(GpuAttribute::kCount)];      ///< and the answers
  bool shared_opt_in;                                      ///< functions are allowed more shared memory one by one
  bool keeps_running_graphs;                               ///< a graph may be destroyed while it runs
};
/// The face of the library this is linked into.
extern const Face kFace;

/// Runs one call of the driver: counts it, fails it where a test wants that.
int call(const char* symbol, const std::function<int()>& body);

// What gpu_entry_points.inc lists.
#define ENTRY(member, parameters, names, cuda, hip) int member parameters;
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY

// What differs in shape.
int open_context(int device);
int close_context(int device);
int set_current(int device);  ///< of this thread; -1: none
int enable_peer_access(int peer);
int copy_between(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream);
int allow_dynamic_shared(void* function, int bytes);
int add_kernel_node(void** node, void* graph, void* const* after, size_t count, const GpuLaunch& launch);
int set_kernel_node(void* executable, void* node, const GpuLaunch& launch);
int add_copy_node(void** node, void* graph, void* const* after, size_t count, void* to, const void* from, size_t bytes);
int set_copy_node(void* executable, void* node, void* to, const void* from, size_t bytes);
/// Makes a map as parameters of kernels have it: what the fake driver reads again.
int make_map(void* map, const TensorMap& form, void* address);
/// Notes a violation; returns 1, the error for invalid values.
int violation(const std::string& what);

}  // namespace tg::fake
