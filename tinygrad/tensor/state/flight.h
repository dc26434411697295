/// \file Schedules running in several threads, and threads that read values. What one overwrites, no other may read or
/// write meanwhile: the graph's lock is not held while kernels run, so a second thread that plans now would see a write
/// in progress as pending and make it again.
#pragma once
#include <memory>

#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg::tensor_detail {

/// One run, from its plan until tensors point to its results.
class Flight {
 public:
  Flight() = default;
  Flight(const Flight&) = delete;
  ~Flight();
  /// Registers the run, under the GraphScope it was planned in; returns true when it may start. Returns false when it
  /// overwrites what another thread's run uses, or uses what that run overwrites: release the graph, wait(), plan
  /// again. A thread that holds the graph from outside cannot wait for one that needs it to finish: it runs.
  bool start(const BoundSchedule& bound, const Writes& writes);
  /// Does so for a thread that only reads memory, until this object dies.
  bool start_reading(const Buffer& memory);
  void wait();

  struct Uses;  // flight.cpp

 private:
  bool start(std::shared_ptr<Uses> uses);
  std::shared_ptr<Uses> mine_, other_;
};

}  // namespace tg::tensor_detail
