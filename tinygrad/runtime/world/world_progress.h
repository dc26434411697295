/// \file Progress of the operations of a world: one thread, helped by those that wait, makes all calls of MPI.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/queue.h"
#include "tinygrad/runtime/world/exchange.h"
#include "tinygrad/runtime/world/peers.h"

namespace tg {

class WorldProgress;
using Clock = std::chrono::steady_clock;

/// An operation from its start to its end.
class WorldOperation final : public Event {
 public:
  WorldOperation(WorldProgress& progress, Collective c, const void* in, void* out, std::shared_ptr<void> keep)
      : what(std::move(c)), input(in), output(out), owner(std::move(keep)), progress_(progress) {}
  bool done() override;
  void wait() override;

  const Collective what;
  const void* const input;
  void* const output;
  std::shared_ptr<void> owner;
  std::unique_ptr<Exchange> exchange{};
  Clock::time_point moved{}, told{};  ///< when something arrived last; when those it waits for were told
  uint64_t number = 0;                ///< among those of its group
  uint64_t group_id = 0;
  std::atomic<bool> complete{false};

 private:
  WorldProgress& progress_;
};

/// Why the world ended.
struct WorldFailure {
  int rank = -1;  ///< whose fault it is; -1: unknown
  std::string why;
};

class WorldProgress {
 public:
  /// `device`: the default one of this process.
  WorldProgress(std::unique_ptr<Mpi> mpi, double timeout_s, std::string device)
      : mpi_(std::move(mpi)), timeout_s_(timeout_s), device_(std::move(device)) {}
  /// Joins the world: `expected` processes. PeerError when it does not form in time.
  void join(int expected);
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(cards_.size()); }
  const std::vector<PeerCard>& cards() const { return cards_; }
  /// Returns a number for each rank: equal ones are on one machine.
  std::span<const int> machines() const { return machines_; }
  std::string version() const { return version_; }
  /// Whether the default devices of all processes are of one kind.
  bool devices_alike() const { return devices_alike_; }
  double timeout_s() const { return timeout_s_; }
  /// Begins an operation in the calling thread. `waits`: the caller waits for it at once, and makes progress itself;
  /// the thread would only take a processor from those that wait.
  void submit(const std::shared_ptr<WorldOperation>& op, bool waits);
  void wait_for(WorldOperation& op);
  /// Ends the world, for the first reason given. `tell`: the others do not know yet.
  void fail(WorldFailure f, bool tell);
  bool failed() const { return failed_; }
  [[noreturn]] void throw_failure(const std::string& operation);
  /// Waits until all others leave too.
  void leave();
  /// Waits, for a moment, until the others have been told of a failure.
  void wait_told();
  /// Called by the thread once the world has failed, and by leave() when all are there. Set before join().
  std::function<void()> on_failure, on_leaving;

 private:
  struct Control {
    enum Kind : uint32_t { kStatus, kFailure, kLeaving } kind = kStatus;
    int32_t rank = 0;
    uint64_t group = 0, number = 0, fingerprint = 0;
    char text[424] = {};
  };
  struct Told {
    std::unique_ptr<Control> message;
    Mpi::Request request;
  };
  struct Known {
    uint64_t number = 0, fingerprint = 0;
    std::shared_ptr<const WorldOperation> operation;  // its text is made where it is needed
  };
  void run();
  void exchange_cards();
  void watch();
  bool poll();
  void begin_submitted();
  bool advance_all(Clock::time_point now);
  void look_after(WorldOperation& op, Clock::time_point now);
  void receive_controls();
  void handle(const Control& c, int from);
  void compare(const Control& c, int from);
  void send_control(const Control& c, int to);
  void tell_failure();
  void notice_deaths(Clock::time_point now);
  void end_unattended();
  void end_receiving();

  std::unique_ptr<Mpi> mpi_;
  const double timeout_s_;
  const std::string device_;
  bool devices_alike_ = true;
  int rank_ = 0, tags_ = 0;
  std::string version_;
  std::vector<PeerCard> cards_;
  std::vector<int> machines_;
  std::optional<PeerWatch> watch_;
  std::thread thread_;

  std::mutex mpi_mutex_;  // held by whoever calls MPI; guards what follows
  std::vector<std::shared_ptr<WorldOperation>> active_;
  std::map<uint64_t, std::deque<Known>> history_;         // by group: its latest operations
  std::map<uint64_t, uint64_t> numbers_;                  // by group: operations so far
  std::map<int, std::string> doing_;                      // by rank: what it said last that it waits in
  std::map<std::pair<uint64_t, int>, uint64_t> reached_;  // by group and rank: operations it said it came to
  std::vector<bool> left_;
  Control incoming_;
  Mpi::Request incoming_request_;
  std::deque<Told> told_;
  bool closed_ = false;         // all have left
  bool crowded_ = true;         // processes here are more than processors
  Clock::time_point looked_{};  // for messages that are no operation's, and for deaths

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<WorldOperation>> submitted_;
  std::optional<WorldFailure> failure_;
  Clock::time_point failed_at_{};
  std::exception_ptr join_error_;
  std::map<int, Clock::time_point> dead_;
  std::optional<Clock::time_point> asked_to_end_;
  bool joined_ = false, stop_ = false;
  std::atomic<bool> failed_{false}, tell_{false}, all_told_{false}, seen_{false}, leaving_{false};
  std::atomic<int> waiting_{0};
};

}  // namespace tg
