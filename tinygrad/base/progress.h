/// \file A progress line like tqdm's: percentage, bar, rate, time left and a note from the caller.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tg {

/// What progress counts.
enum class ProgressUnit { kSteps, kBytes };

/// Returns the line shown after `done` of `total` steps (total <= 0: unknown) and `seconds`, cut to `columns`.
std::string format_progress(std::string_view label, int64_t done, int64_t total, double seconds, std::string_view note,
                            int columns, ProgressUnit unit = ProgressUnit::kSteps);
/// Returns the width of the terminal on standard error; 80 where it is not known.
int terminal_columns();

/// Draws on standard error, at most ten times a second when that is a terminal, else a line every ten seconds to keep
/// logs short.
class Progress {
 public:
  explicit Progress(int64_t total, std::string label = "", bool enabled = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Advances by `steps`; `note` replaces the text at the end of the line.
  void advance(int64_t steps = 1, std::string_view note = {});
  /// Draws the last state and ends the line; the destructor does so too.
  void close();
  /// Whether the output is a terminal.
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
