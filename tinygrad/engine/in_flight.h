/// \file Operations of several processes that are under way while kernels run.
#pragma once
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/engine/launch_list.h"
#include "tinygrad/runtime/world/collective.h"
#include "tinygrad/runtime/world/device_groups.h"

namespace tg {

/// Starts collectives and makes those launches wait for them that use the same memory. Small sums, gathers and scatters
/// of one group are exchanged together, in a bucket that is sent when it is full or one of its results is needed; which
/// share one follows from the launches alone, and so is the same in all processes. Where devices exchange their memory
/// by themselves it is them that wait, and not the host.
class InFlight {
 public:
  explicit InFlight(const LaunchList& list) : list_(list) {}
  /// Waits for all of them, also where an error ends the run: their memory is in use.
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  /// A bucket takes operations of at most so many bytes together. A link of 1 Gbit/s needs 8 ms for them, a hundred
  /// times what a message costs by itself.
  static constexpr int64_t kBucketBytes = int64_t{1} << 20;

  bool empty() const { return pending_.empty() && open_.empty() && pairs_.empty(); }
  void start(const Launch& l);
  /// Waits for those that write what the launch uses, or read what it writes.
  void wait_for(const Launch& l);
  void wait_all();

 private:
  struct Pending {
    std::vector<const Launch*> launches;  ///< more than one: a bucket
    EventRef event;                       ///< of what goes through the host
    std::optional<distributed::OnDevice> device;
    std::shared_ptr<std::byte> staged;  ///< the results, where they are not written in place
    int64_t begin;
    Collective what;
  };
  /// Operations that wait for others.
  struct Bucket {
    std::vector<const Launch*> launches;
    Collective what;
    int64_t bytes;
  };
  /// `awaited`: finish() is what follows.
  void begin(const Collective& c, std::vector<const Launch*> launches, bool awaited);
  void begin_on_host(const Collective& c, std::vector<const Launch*> launches, bool awaited);
  void begin_on_device(DeviceGroup& group, const Collective& c, std::vector<const Launch*> launches);
  void begin_pairs();
  void begin_all();
  void wait_pending();
  void finish(const Pending& p);
  bool conflicts(const std::vector<const Launch*>& members, const Launch& l) const;

  const LaunchList& list_;
  std::deque<Pending> pending_;
  std::deque<Bucket> open_;
  std::vector<const Launch*> pairs_;  // what is sent and received between processes that have not agreed on the way
};

/// Tells the other processes, which wait for this one, of the error that ends a run here.
void tell_error(const char* what);
/// Whether a run exchanges values with other processes.
bool has_collectives(std::span<const ScheduleCall> calls);
bool has_collectives(const LaunchList& list);
/// Calls `f`; where that is part of a run with other processes, they hear of an error in it.
template <class F> void telling_errors(bool exchanges, F&& f) {
  if (!exchanges) return f();
  try {
    f();
  } catch (const PeerError&) { throw; } catch (const std::exception& e) {
    tell_error(e.what());
    throw;
  }
}

}  // namespace tg
