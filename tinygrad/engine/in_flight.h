/// \file Operations of several processes that are under way while kernels run.
#pragma once
#include <deque>
#include <exception>
#include <memory>

#include "tinygrad/base/error.h"
#include "tinygrad/engine/launch_list.h"

namespace tg {

/// Starts collectives and makes those launches wait for them that use the same memory.
class InFlight {
 public:
  explicit InFlight(const LaunchList& list) : list_(list) {}
  /// Waits for all of them, also where an error ends the run: their memory is in use.
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  bool empty() const { return pending_.empty(); }
  void start(const Launch& l);
  /// Waits for those that write what the launch uses, or read what it writes.
  void wait_for(const Launch& l);
  void wait_all();

 private:
  struct Pending {
    const Launch* launch;
    EventRef event;
    std::shared_ptr<std::byte> staged;  ///< the result, where the device's memory is not the host's
    int64_t begin;
  };
  void finish(const Pending& p);
  bool conflicts(const Pending& p, const Launch& l) const;

  const LaunchList& list_;
  std::deque<Pending> pending_;
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
