/// \file A progress line in the manner of tqdm: percentage, bar, rate, time left and a few words of the caller's.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tg {

/// The line shown after `done` of `total` steps (total <= 0: unknown) and `seconds`, cut to `columns`.
std::string format_progress(std::string_view label, int64_t done, int64_t total, double seconds, std::string_view note,
                            int columns);

/// Draws on standard error, at most ten times a second when that is a terminal, else a line every ten seconds: logs
/// stay short.
class Progress {
 public:
  explicit Progress(int64_t total, std::string label = "", bool enabled = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `steps` more are done; `note` replaces the words at the end of the line.
  void advance(int64_t steps = 1, std::string_view note = {});
  /// Draws the last state and ends the line; the destructor does it too.
  void close();
  /// On a terminal.
  bool visible() const { return visible_; }
  int64_t done() const { return done_; }

 private:
  void draw();
  std::string line(int columns) const;
  int64_t total_, done_ = 0;
  std::string label_, note_;
  bool visible_, logs_;
  std::chrono::steady_clock::time_point start_, drawn_, last_;  // last_: when the last step was done
};

}  // namespace tg
