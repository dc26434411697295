/// \file Runs under way in several threads. What a run overwrites no other may read or write meanwhile: the graph's
/// lock is not held while kernels run, so a second thread that plans now would see a write as pending that is being
/// made, and make it again.
#pragma once
#include <memory>

#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/effects.h"

namespace tg::tensor_detail {

/// One run, from its plan until tensors point to its results.
class Flight {
 public:
  Flight() = default;
  Flight(const Flight&) = delete;
  ~Flight();
  /// Under a GraphScope, with what was planned: true when it may run. False when it overwrites what another thread's
  /// run uses, or uses what that overwrites: let the graph go, wait(), plan again. A thread that holds the graph from
  /// outside cannot wait for one that needs it to finish: it runs.
  bool start(const BoundSchedule& bound, const Writes& writes);
  void wait();

  struct Uses;  // flight.cpp

 private:
  std::shared_ptr<Uses> mine_, other_;
};

}  // namespace tg::tensor_detail
