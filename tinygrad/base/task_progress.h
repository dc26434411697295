/// \file The line that long tasks of the library show in a terminal: compiling, searching, downloading, loading.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tinygrad/base/progress.h"

namespace tg {

/// Shows how far a task is, from half a second after its beginning (PROGRESS=2: at once) until its end, which takes the
/// line away: quick tasks show nothing, and nothing stays. Only on a terminal, never under DEBUG, whose lines say more,
/// nor with PROGRESS=0; of tasks within tasks the outermost is shown. Any thread may advance it.
class TaskProgress {
 public:
  /// `total`: steps, or bytes; 0: unknown.
  TaskProgress(std::string label, int64_t total, ProgressUnit unit = ProgressUnit::kSteps);
  ~TaskProgress();
  TaskProgress(const TaskProgress&) = delete;
  TaskProgress& operator=(const TaskProgress&) = delete;

  /// Advances by `steps`; `note` replaces the text at the end of the line.
  void advance(int64_t steps = 1, std::string_view note = {});
  /// Asks `done` ten times a second, from a thread of its own, how far the task is.
  void follow(std::function<int64_t()> done);
  /// Takes the line away until the next step, for something to be printed.
  void hide();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool now);

  const std::string label_;
  const int64_t total_;
  const ProgressUnit unit_;
  const Clock::time_point start_ = Clock::now();
  bool allowed_;  // to be seen
  std::mutex mutex_;
  std::string note_;
  int64_t done_ = 0;
  bool drawn_ = false, stop_ = false;
  Clock::time_point last_drawn_;
  std::condition_variable stopping_;
  std::thread follower_;
};

}  // namespace tg
