/// \file The other processes of a world: who they are, and whether those on this machine are alive.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tg {

/// What each process tells the others when the world forms.
struct PeerCard {
  char version[32] = {};   ///< of the library
  char device[32] = {};    ///< kind of the default device
  char machine[160] = {};  ///< the same on one machine, in one namespace of processes
  int64_t pid = 0;
  uint64_t seed = 0;        ///< of random numbers, where the program chooses none: rank 0's counts
  int64_t profiled = 0;     ///< 1: PROFILE is set
  int64_t per_machine = 0;  ///< WORLD_PER_MACHINE
};
/// Returns the card of this process, whose default device is `device`.
PeerCard own_card(const std::string& device);

/// Watches processes of this machine, and requests to end this one. Its thread blocks in the kernel until something
/// happens.
class PeerWatch {
 public:
  struct Events {
    std::function<void(int rank)> died;  ///< a process is gone
    std::function<void()> asked_to_end;  ///< SIGTERM, as launchers send it when some process died
  };
  /// Begins to watch the processes that are on the machine of `me`.
  PeerWatch(const std::vector<PeerCard>& cards, int me, Events events);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  /// Lets stopped processes (SIGSTOP) go on, so that they learn how the world ended, and end themselves.
  void wake_stopped();
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  void run();
  Events events_;
  std::vector<std::pair<int, int>> watched_;  // file descriptor and rank
  int wake_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tg
