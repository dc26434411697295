/// \file A model that all processes of a world compute, and that rank 0 alone calls: the others are told each call and
/// make it too. For programs in which only one process knows what comes next, as one that talks to a user or a network.
/// Programs whose processes all make the same calls need ModelOptions::divided alone.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/llm/language_model.h"

namespace tg::llm {

/// Rank 0's hold on the other processes, which are in follow_leader(). Models that ModelOptions::leader names are
/// loaded by all, and each has a part of them. While nothing is called, the others are told from time to time that they
/// still are wanted. Calls are not stopped by a StopScope in their middle, but between one and the next.
class WorldLeader {
 public:
  /// Returns nullptr in a world of one process. ValueError in another process than rank 0.
  static std::shared_ptr<WorldLeader> begin();
  /// Lets the others go: their follow_leader() returns.
  ~WorldLeader();
  WorldLeader(const WorldLeader&) = delete;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  WorldLeader();
  std::unique_ptr<Impl> impl_;
};

/// Makes the calls of rank 0's models in every other process, until rank 0 lets go. `file` is the one that rank 0
/// loads. PeerError when a process fails.
void follow_leader(const io::GgufFile& file, const std::string& device = {});

}  // namespace tg::llm
