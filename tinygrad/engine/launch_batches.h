/// \file Launches of a replay that are submitted to their device at once.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "tinygrad/engine/launch_list.h"
#include "tinygrad/runtime/device.h"

namespace tg {

/// Launches [begin, end) of a list, all on one device that batches commands.
class LaunchBatch {
 public:
  /// Records the launches; their buffers are bound. Empty where the device has no batches.
  static std::unique_ptr<LaunchBatch> record(const LaunchList& list, uint32_t begin, uint32_t end, Device& device);
  /// Submits the launches with the list's present arguments and counts them.
  void submit(const LaunchList& list);
  uint32_t begin() const { return begin_; }
  uint32_t end() const { return end_; }

 private:
  LaunchBatch(const LaunchList& list, uint32_t begin, uint32_t end, Device& device);
  void update(const LaunchList& list);
  bool copies_overlap(const LaunchList& list) const;

  uint32_t begin_, end_;
  Device& device_;
  // The arguments of the submission before; the commands point to them.
  std::vector<void*> handles_;
  std::vector<int64_t> offsets_, values_;
  uint32_t first_argument_ = 0, first_value_ = 0;
  std::vector<BatchCommand> commands_;
  std::vector<uint32_t> changed_;
  bool submitted_ = false;
  std::unique_ptr<Batch> batch_;
};

/// Records every stretch of two or more launches on one device that batches commands.
std::vector<std::unique_ptr<LaunchBatch>> record_batches(const LaunchList& list);

}  // namespace tg
