/// \file How an operation is made of messages.
#pragma once
#include <memory>
#include <span>

#include "tinygrad/runtime/world/collective.h"
#include "tinygrad/runtime/world/messages.h"

namespace tg {

/// An operation under way. Values are combined in the order of the group on the process that owns them and sent to the
/// others, so all have the same bits, in every run.
class Exchange {
 public:
  static constexpr int kTags = 32;  ///< an exchange uses the tags [tag, tag + kTags)
  virtual ~Exchange() = default;
  /// Does what can be done now, without waiting. True when the operation is complete.
  virtual bool advance(bool* moved) = 0;
  /// Returns the ranks it waits for.
  virtual std::vector<int> missing() const = 0;
  /// Whether it is complete only after those of its group that were begun before.
  virtual bool in_order() const { return false; }
  /// Returns why it will never be complete, "" where nothing says so.
  virtual std::string broken() { return {}; }
};

/// Starts an operation of process `me` (a rank of the group) by the algorithm that costs least; `machines` has a number
/// for each rank of the world. `in` and `out` stay until it is complete.
std::unique_ptr<Exchange> start_exchange(Mpi& mpi, const Collective& c, int me, std::span<const int> machines,
                                         const std::byte* in, std::byte* out, int tag);

}  // namespace tg
