/// \file Operations that devices do by themselves: which, agreed once by all processes of a group, and how they are
/// ordered with the device's queues and looked after.
#pragma once
#include <memory>
#include <vector>

#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/queue_order.h"
#include "tinygrad/runtime/world/device_link.h"

namespace tg::distributed {

/// Returns the group whose devices do an operation on memory of `device`; null: it goes through the host. The first
/// call for a group of processes, of which each makes it, waits for all of them and forms the group where all can.
/// PeerError; DeviceError in all where NCCL=2 asks one of them for what they cannot do.
DeviceGroup* device_group(Device& device, const Collective& c);

/// Whether the processes of an operation have agreed: device_group() waits for none of them then.
bool is_agreed(Device& device, const Collective& c);

/// Operations under way on a device.
class OnDevice {
 public:
  /// Begins them, together, behind what the device's queues do with their memory. `whole`: what they are as one.
  /// `keep` lives until they are done. Throws DeviceError of this process, PeerError of another.
  OnDevice(DeviceGroup& group, Device& device, const Collective& whole, std::span<const DeviceOperation> operations,
           std::shared_ptr<void> keep);
  /// Makes later commands of the device wait for them; the host goes on.
  void order() const;
  /// Waits for them. PeerError.
  void wait() const { operation_->wait(); }

 private:
  Device* device_;
  std::vector<MemoryAccess> accesses_;
  EventRef done_, operation_;
};

/// Ends what is under way, in a world that has failed.
void abandon_device_groups();
/// Waits until nothing is under way, or the world fails.
void settle_device_groups();
/// Leaves all groups, with the other processes, which do the same.
void leave_device_groups();

}  // namespace tg::distributed
