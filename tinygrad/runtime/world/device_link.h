/// \file Exchanges that the devices of several processes make by themselves, in their own memory: what a backend that
/// has them implements.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tinygrad/runtime/queue.h"
#include "tinygrad/runtime/world/collective.h"

namespace tg {

/// An operation on memory of a device: what Collective says of `in` and `out` holds.
struct DeviceOperation {
  Collective what;
  MemoryPlace in, out;
};

/// A device among those of the other processes of a group, one of each. Methods are called from several threads; none
/// waits for another process.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// Whether it does an operation. The same in all processes.
  virtual bool takes(const Collective& c) const = 0;
  /// Begins operations, together, behind the commands that Device::queue() has. launched() must have given the event of
  /// those before. PeerError after abandon().
  virtual void start(std::span<const DeviceOperation> operations) = 0;
  /// Returns the event behind the operations begun last, once the device has them as commands; null before that.
  /// Also after the group was made, then of no command. PeerError of an error, or after abandon().
  virtual EventRef launched() = 0;
  /// Returns how many starts are not done.
  virtual size_t under_way() = 0;
  /// Returns an error of what goes on by itself, "" where there is none.
  virtual std::string broken() = 0;
  /// Ends everything under way. `lost` throws the reason, given the text of an operation: where one is not done,
  /// whoever uses the device gets that, because its results are not there.
  virtual void abandon(const std::function<void(const std::string& operation)>& lost) noexcept = 0;
  /// Leaves the others, which do so too, once nothing is under way: true when that is done.
  virtual bool leave() = 0;
};

/// How a device joins groups.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  /// Returns why this process cannot; empty: it can.
  virtual std::string missing() = 0;
  /// Returns what is another for other hardware of this machine, and the version that all of a group need.
  virtual std::string hardware() = 0;
  virtual int version() = 0;
  /// Returns bytes by which processes find one another, made by the first of them for all. DeviceError.
  virtual std::string make_id() = 0;
  /// Begins to join a group: DeviceGroup::launched() gives an event when all have. `pair`: one that sends and one that
  /// receives. DeviceError.
  virtual std::unique_ptr<DeviceGroup> join(const std::string& id, const std::vector<int>& group, int rank,
                                            bool pair) = 0;
};

}  // namespace tg
