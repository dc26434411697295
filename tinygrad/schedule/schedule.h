/// \file Scheduling: from a tensor graph to a list of kernel calls. Buffers are numbers; no memory is touched.
#pragma once
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/target/program.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {

/// One buffer of a schedule.
struct ScheduleBuffer {
  enum Kind : uint8_t { kInput, kOutput, kInternal } kind = kInternal;
  DType dtype;
  int64_t size = 0;  ///< elements
  std::string device;
  int64_t offset = -1;  ///< kInternal after planning: bytes into the device's arena; -1: memory of its own
  /// Why the value is stored, though it could be computed where it is read; a literal, empty for what was given or
  /// asked for.
  const char* why = "";
  double instead = 0;  ///< how often each element would be computed otherwise; 0: that was not the question
};

/// One step: a kernel over buffers, a copy buffers[0] <- buffers[1] between devices, or what processes do together,
/// from buffers[1] to buffers[0].
struct ScheduleCall {
  enum Kind : uint8_t { kKernel, kCopy, kCollective } kind = kKernel;
  KernelRef kernel;
  std::vector<int32_t> buffers;  ///< by PARAM slot: index into Schedule::buffers
  std::vector<int32_t> vars;     ///< the kernel's variables v00, v01, ...: index into BoundSchedule::vars
  std::string metadata;          ///< the tensor methods it was made for, for DEBUG=2
  std::shared_ptr<const CollectiveArg> collective{};  ///< what processes exchange, of a kCollective
};

/// Bytes a schedule needs in addition to its inputs.
struct MemoryNeeds {
  int64_t results = 0;        ///< of its outputs
  int64_t intermediates = 0;  ///< of the arenas, and of internal buffers with memory of their own
  int64_t peak() const { return results + intermediates; }
};

/// A plan that every graph of the same structure reuses; holds no user memory.
struct Schedule {
  std::vector<ScheduleBuffer> buffers;  ///< inputs first, in the order of BoundSchedule::inputs
  std::vector<ScheduleCall> calls;      ///< in execution order
  std::vector<int32_t> results;         ///< per root: index of the buffer that holds it; -1: the root needs no kernel
  std::vector<std::pair<std::string, int64_t>> arenas;  ///< device and bytes of the planned arenas for internal buffers
  int64_t nodes = 0;                                    ///< of the graph, for statistics
  mutable std::shared_ptr<const void> compiled;         ///< cache of the engine: the loaded kernels
  /// Returns the bytes a run allocates, on one device or, where `device` is empty, on all.
  MemoryNeeds memory(std::string_view device = {}) const;
};

/// Prefix of the variables that replace integers in small graphs (normalize.cpp); nobody binds them by name.
inline constexpr std::string_view kIntegerVariable = "@";

/// A schedule bound to the buffers and values of one call.
struct BoundSchedule {
  std::shared_ptr<const Schedule> schedule;
  UOps inputs;   ///< nodes of the global graph, one per kInput buffer: a BUFFER, or a CONST it holds
  UOps results;  ///< per root: its storage in the global graph: a BUFFER (new for kOutput) or a view of one
  std::vector<std::pair<UOp, UOp>>
      stored;  ///< nodes whose values lie in storage once the schedule has run, for Graph::forward
  std::vector<std::pair<std::string, int64_t>> vars;  ///< variables' names and values
  std::vector<const char*> origins;                   ///< per root: the user's operation it was made for, or null
  bool cache_hit = false;
};

/// Schedules `roots` (nodes of the global graph; under a GraphScope). Makes new BUFFER nodes for the results, with
/// device "" where a root has none.
/// ValueError for a variable without a value, DeviceError where devices mix, Error for assigns that depend on each
/// other cyclically.
BoundSchedule create_schedule(std::span<const UOp> roots);
/// Makes a BUFFER node of the global graph with a new slot.
UOp new_buffer(const Shape& shape, DType dtype, const std::string& device);
void clear_schedule_cache();
/// Prints a schedule: buffers, then calls with the loops of their kernels (`r`: reduces).
void print_schedule(std::ostream& os, const Schedule& s);

}  // namespace tg
