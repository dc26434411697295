/// \file The line of a task: when it appears, and that it goes.
#include "tinygrad/base/task_progress.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"

namespace tg {
namespace {

constexpr std::chrono::milliseconds kQuick{500}, kBetween{100};
constexpr int64_t kAtOnce = 2;  // of PROGRESS

std::atomic<const TaskProgress*> shown{nullptr};

}  // namespace

TaskProgress::TaskProgress(std::string label, int64_t total, ProgressUnit unit)
    : label_(std::move(label)), total_(total), unit_(unit) {
  const TaskProgress* nobody = nullptr;
  allowed_ = shows_progress() && env::PROGRESS.get() != 0 && env::DEBUG.get() == 0 && ::isatty(STDERR_FILENO) &&
             shown.compare_exchange_strong(nobody, this);
  draw(true);
}

TaskProgress::~TaskProgress() {
  if (follower_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    stopping_.notify_all();
    follower_.join();
  }
  hide();
  if (allowed_) shown = nullptr;
}

void TaskProgress::advance(int64_t steps, std::string_view note) {
  if (!allowed_) return;
  std::lock_guard lock(mutex_);
  done_ += steps;
  if (!note.empty()) note_ = note;
  draw(!note.empty());
}

void TaskProgress::follow(std::function<int64_t()> done) {
  if (!allowed_) return;
  follower_ = std::thread([this, done = std::move(done)] {
    std::unique_lock lock(mutex_);
    while (!stopping_.wait_for(lock, kBetween, [this] { return stop_; })) {
      done_ = done();
      draw(true);
    }
  });
}

void TaskProgress::hide() {
  std::lock_guard lock(mutex_);
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

/// Draws the line where it is time to; `now`: however short ago it was drawn.
void TaskProgress::draw(bool now) {
  if (!allowed_) return;
  const auto time = Clock::now();
  if (time - start_ < kQuick && env::PROGRESS.get() < kAtOnce) return;
  if (drawn_ && !now && time - last_drawn_ < kBetween) return;
  const std::string text = format_progress(label_, done_, total_, std::chrono::duration<double>(time - start_).count(),
                                           note_, terminal_columns() - 1, unit_);
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  drawn_ = true;
  last_drawn_ = time;
}

}  // namespace tg
