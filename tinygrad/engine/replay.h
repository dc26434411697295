/// \file Recorded runs as one flat list of launches: what a captured function does when it is called again.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/engine/launch_list.h"
#include "tinygrad/engine/parallel_launches.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/write_watch.h"
#include "tinygrad/schedule/schedule.h"

namespace tg {

class ByteReader;
class ByteWriter;
struct MergedRuns;
class LaunchBatch;

/// One run of a schedule, as it happened.
struct RecordedRun {
  std::shared_ptr<const Schedule> schedule;
  std::vector<BufferRef> buffers;  ///< by Schedule::buffers; empty for internal ones
  std::vector<std::pair<std::string, int64_t>> vars;
  std::vector<CompiledKernelRef> kernels;  ///< by call
  std::vector<bool> blank{};               ///< by buffer: it had no memory before, so nothing to read
};
/// Sets the list that runs of this thread are appended to (unless CAPTURING=0). Returns the one before.
std::vector<RecordedRun>* record_runs(std::vector<RecordedRun>* runs);
/// Whether runs of this thread are recorded.
bool recording_runs();

/// What a replay is made from.
struct ReplayPlan {
  std::vector<RecordedRun> runs;
  std::vector<BufferRef> inputs;   ///< replaced in each run by the buffers it is given
  std::vector<BufferRef> outputs;  ///< likewise: results nobody else may see
  /// The index of a variable's value among those each run is given; -1: the value it had.
  std::function<int(const std::string& name, int64_t value)> variable;
  bool prune = false;  ///< kernels that depend on no input, no variable and nothing that is written run now, and again
                       ///< when what they read was written
};

class Replay {
 public:
  /// Plans the memory of everything between inputs and outputs that nobody else holds. Takes the plan's buffers: what
  /// it drops becomes free.
  explicit Replay(ReplayPlan plan);
  ~Replay();
  /// Writes what read() needs besides external(). DeviceError for kernels without code.
  void write(ByteWriter& w) const;
  /// Makes a replay from bytes: with its external memory, buffers like its inputs and outputs, and the number of values
  /// each run is given. FormatError for bytes that are none, DeviceError for code of another machine. Code is checked
  /// to be loadable, not to be harmless.
  static std::unique_ptr<Replay> read(ByteReader& r, std::vector<BufferRef> external, std::span<const BufferRef> inputs,
                                      std::span<const BufferRef> outputs, size_t nvars);
  Replay(const Replay&) = delete;

  /// Runs everything. Buffers are as those of the plan in size, type and device. An input that shares memory with what
  /// is written is copied first.
  void run(std::span<const BufferRef> inputs, std::span<const BufferRef> outputs, std::span<const int64_t> vars);

  size_t calls() const;  ///< kernels and copies
  size_t kernels() const;
  bool pruned() const { return !constant_launches_.empty(); }
  /// Memory that is neither input nor output nor planned, in the order it is first used.
  const std::vector<BufferRef>& external() const { return external_; }
  bool writes_external(size_t i) const { return external_written_[i]; }
  bool writes_input(size_t i) const { return input_written_[i]; }
  int64_t planned_bytes() const;
  /// Gives planned memory back until the next run.
  void free_intermediates();
  std::vector<std::string> kernel_names() const;
  /// Groups of launches that run on several threads when that pays.
  const std::vector<LaunchGroup>& parallel_launches() const { return parallel_; }

 private:
  class Reader;
  Replay();
  void write_buffers(ByteWriter& w) const;
  void write_launches(ByteWriter& w) const;
  std::vector<uint32_t> add_launches(const MergedRuns& m);
  void plan_intermediates(Schedule& s, const std::vector<uint32_t>& call_of) const;
  void classify_buffers(const MergedRuns& m);
  std::vector<LaunchUse> uses() const;
  void finish_list();
  void run_constant_launches(const std::vector<bool>& constant);
  void allocate();
  void bind_input(size_t i, const BufferRef& given);
  void bind_buffer(size_t number, const BufferRef& to);
  void unbind_given();
  void run_all(std::span<const BufferRef> inputs, std::span<const BufferRef> outputs, std::span<const int64_t> vars);
  void run_launches(int threads, bool watched);
  void submit(LaunchBatch& batch, Cancellation::Hold& hold);
  void run_concurrently(LaunchGroup& s, int threads, Cancellation::Hold& hold);
  void note_writes() const;
  bool is_disjoint() const;

  LaunchList list_;
  std::vector<Launch> constant_launches_;  // pruned: again when what they read was written
  WriteWatch constant_sources_;            // what they read
  std::vector<LaunchGroup> parallel_;
  std::optional<std::vector<std::unique_ptr<LaunchBatch>>> batches_;  // recorded by the first run
  std::vector<std::vector<uint32_t>> positions_;                      // by buffer: arguments that are it
  std::vector<std::pair<int, uint32_t>> var_patches_;
  std::vector<uint32_t> symbolic_;  // launches whose extent follows from variables
  std::vector<int32_t> input_number_, output_number_;
  std::vector<bool> input_read_, input_written_, external_written_;
  std::vector<BufferRef> external_;
  std::map<std::string, BufferRef> arenas_;
  std::vector<std::pair<size_t, ScheduleBuffer>> planned_;  // number and place
  bool allocated_ = false;
};

}  // namespace tg
