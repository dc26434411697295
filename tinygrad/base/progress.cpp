/// \file The progress line.
#include "tinygrad/base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tinygrad/base/output.h"
#include "tinygrad/base/text.h"

namespace tg {
namespace {

std::string clock_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 359999) return "?";
  const int64_t s = std::llround(seconds);
  char text[32];
  if (s >= 3600) std::snprintf(text, sizeof text, "%d:%02d:%02d", int(s / 3600), int(s / 60 % 60), int(s % 60));
  else std::snprintf(text, sizeof text, "%02d:%02d", int(s / 60), int(s % 60));
  return text;
}

/// Returns a bar of `cells` characters with eighths of a cell.
std::string draw_bar(double fraction, int cells) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * cells * 8);
  std::string bar;
  for (int i = 0; i < eighths / 8; i++) bar += "█";
  bar += kEighths[eighths % 8];
  for (int used = eighths / 8 + (eighths % 8 != 0); used < cells; used++) bar += ' ';
  return bar;
}

std::string speed_text(double rate, ProgressUnit unit) {
  if (unit == ProgressUnit::kBytes) return rate <= 0 ? "? B/s" : human_bytes(rate) + "/s";
  char speed[48];
  if (rate <= 0) std::snprintf(speed, sizeof speed, "?it/s");
  else if (rate < 1) std::snprintf(speed, sizeof speed, "%.2fs/it", 1 / rate);
  else std::snprintf(speed, sizeof speed, "%.2fit/s", rate);
  return speed;
}

std::string count_text(int64_t n, ProgressUnit unit) {
  return unit == ProgressUnit::kBytes ? human_bytes(static_cast<double>(n)) : std::to_string(n);
}

}  // namespace

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string format_progress(std::string_view label, int64_t done, int64_t total, double seconds, std::string_view note,
                            int columns, ProgressUnit unit) {
  const double rate = seconds > 0 ? done / seconds : 0;
  const std::string speed = speed_text(rate, unit);
  std::string head(label), tail;
  if (!head.empty()) head += ": ";
  if (total > 0) {
    char percent[16];
    std::snprintf(percent, sizeof percent, "%3d%%", static_cast<int>(100.0 * std::min(done, total) / total));
    head += percent;
    tail = " " + count_text(done, unit) + "/" + count_text(total, unit) + " [" + clock_time(seconds) + "<" +
           (rate > 0 ? clock_time((total - done) / rate) : "?") + ", " + speed;
  } else {
    tail = count_text(done, unit) + (unit == ProgressUnit::kSteps ? "it [" : " [") + clock_time(seconds) + ", " + speed;
  }
  if (!note.empty()) {
    tail += ", ";
    tail += note;
  }
  tail += "]";
  if (total <= 0) return (head + tail).substr(0, std::max(0, columns));
  const int cells = std::min(columns - static_cast<int>(head.size() + tail.size()) - 2, 40);
  if (cells >= 4) return head + "|" + draw_bar(static_cast<double>(done) / total, cells) + "|" + tail;
  return (head + tail).substr(0, std::max(0, columns));
}

Progress::Progress(int64_t total, std::string label, bool enabled)
    : total_(total),
      label_(std::move(label)),
      visible_(enabled && shows_progress() && ::isatty(STDERR_FILENO)),
      logs_(enabled && shows_progress() && !visible_),
      start_(std::chrono::steady_clock::now()),
      drawn_(start_),
      last_(start_) {
  if (visible_) draw();
}

Progress::~Progress() { close(); }

void Progress::advance(int64_t steps, std::string_view note) {
  done_ += steps;
  if (!visible_ && !logs_) return;
  note_ = note;
  const auto now = std::chrono::steady_clock::now();
  if (steps) last_ = now;
  if (logs_ && now - drawn_ >= std::chrono::seconds(10)) {
    drawn_ = now;
    note_lines(line(200));
  }
  if (visible_ && (!steps || done_ == total_ || now - drawn_ >= std::chrono::milliseconds(100))) draw();
}

/// Time counts up to the last step: the caller's work after it makes no step slower.
std::string Progress::line(int columns) const {
  return format_progress(label_, done_, total_, std::chrono::duration<double>(last_ - start_).count(), note_, columns);
}

void Progress::draw() {
  drawn_ = std::chrono::steady_clock::now();
  std::fprintf(stderr, "\r\033[K%s", line(terminal_columns() - 1).c_str());
  std::fflush(stderr);
}

void Progress::close() {
  if (!visible_) return;
  draw();
  std::fputc('\n', stderr);
  visible_ = false;
}

}  // namespace tg
