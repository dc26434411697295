/// \file A flat list of launches on numbered buffers: what a schedule runs once, and what a replay runs again with
/// other buffers.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/queue_order.h"
#include "tinygrad/schedule/schedule.h"

namespace tg {

/// A kernel, a copy, or what several processes do together. Nothing is looked up, checked or allocated any more when it
/// is launched.
struct Launch {
  HostKernel host = nullptr;           ///< a host kernel without a THREAD range is called directly
  uint32_t arguments = 0, values = 0;  ///< where its buffers and the values of its variables begin in the list
  uint32_t nbuffers = 0, nvalues = 0;
  LaunchSize size;                           ///< THREAD range, grid
  CompiledKernelRef kernel;                  ///< empty: the second buffer goes to the first, see is_collective()
  std::shared_ptr<const ScheduleCall> call;  ///< for reports; empty: a copy made because an input overlaps an output
  std::string device;                        ///< of the kernel
  bool is_collective() const { return call && call->kind == ScheduleCall::kCollective; }
};

/// Whether a call (of a kernel, or a copy where that is empty) writes or reads its buffer k.
inline bool writes_buffer(const CompiledKernelRef& kernel, size_t k) {
  return kernel ? kernel->program->writes[k] : k == 0;
}
inline bool reads_buffer(const CompiledKernelRef& kernel, size_t k) {
  return kernel ? kernel->program->reads[k] : k == 1;
}
/// Whether two buffers have bytes in common, whoever allocated them; memory that is not allocated is its own. Handles
/// are compared as addresses only where they are.
bool buffers_overlap(const Buffer& a, const Buffer& b);
/// Whether launches are timed or validated, and so run one at a time.
bool launches_are_watched();
/// THREAD range, grid and shared memory of a program under these values of its variables.
LaunchSize launch_size_of(const Program& p, std::span<const int64_t> values);
/// Whether variables decide on it.
bool has_symbolic_size(const Program& p);

class InFlight;

class LaunchList {
 public:
  /// Appends call `c` of a schedule to `launches`, or to the list `to`. Kernels assume that what they write is nothing
  /// else they touch: an input that overlaps an output is read from a copy, which is a launch before it. DeviceError
  /// where two outputs overlap.
  void add(const Schedule& s, size_t c, const CompiledKernelRef& kernel, std::span<const int64_t> values,
           std::shared_ptr<const ScheduleCall> call, std::vector<Launch>* to = nullptr);
  /// Appends a launch as it is.
  Launch& append(const CompiledKernelRef& kernel, std::span<const uint32_t> numbers, std::span<const int64_t> values,
                 std::shared_ptr<const ScheduleCall> call, std::vector<Launch>& to);
  /// Points every argument to its buffer, allocating those that have no memory yet; buffers that are not there (inputs
  /// of a replay between its runs) are left out.
  void bind();

  std::span<const uint32_t> numbers_of(const Launch& l) const { return {numbers.data() + l.arguments, l.nbuffers}; }
  /// Runs launches [begin, end) in order and counts them. `hold` begins at the first one that changes what was there
  /// before; up to it a request to stop ends the run, as Cancelled of `what`. `direct`: host kernels are called without
  /// their device. Collectives may be under way when it returns, in `exchanges`.
  void run(size_t begin, size_t end, Cancellation::Hold& hold, const char* what, bool direct,
           InFlight& exchanges) const;
  /// The same, until its collectives are done too.
  void run(size_t begin, size_t end, Cancellation::Hold& hold, const char* what, bool direct) const;
  /// Runs one launch through its device, reporting it; a collective to its end.
  void launch(const Launch& l) const;
  /// What a launch is given; borrowed from the list.
  LaunchArgs arguments_of(const Launch& l) const;
  /// The bytes of device memory that launches touch.
  void add_accesses(const Launch& l, std::vector<MemoryAccess>* to) const;
  /// Counts a launch that something else than run() has made.
  void count(const Launch& l) const;
  /// Counts launches that are called directly as all of `launches` once.
  void count_direct() const;

  std::vector<BufferRef> buffers;  ///< by number
  std::vector<Launch> launches;
  std::vector<uint32_t> numbers;   ///< by argument: of its buffer
  std::vector<void*> handles;      ///< by argument
  std::vector<int64_t> offsets;    ///< by argument: of its first byte from the handle
  std::vector<int64_t> values;     ///< of variables
  size_t irreversible = SIZE_MAX;  ///< the first launch that changes what was there before
  double direct_ops = 0, direct_mem = 0;
  int64_t direct_kernels = 0;

 private:
  void launch_copy(const Launch& l) const;
  void launch_kernel(const Launch& l) const;
  void enqueue(const Launch& l, Device& device) const;
  void flush_others(Queue** pending, const Launch& l) const;
  std::vector<uint32_t> copied_inputs(const Schedule& s, size_t c, const CompiledKernelRef& kernel,
                                      std::vector<Launch>& to);
};

}  // namespace tg
