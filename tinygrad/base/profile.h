/// \file The profile: when the host, the compiler and the devices did what, as a trace for Perfetto and Chrome; that of
/// several processes is one trace.
/// Recorded under PROFILE=1; under VIZ=1 the events are part of the recording (recording.h) instead.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/env.h"

namespace tg::profile {

/// Says whether PROFILE is set, so that nothing is measured when nobody asked.
inline bool on() { return static_cast<bool>(env::PROFILE); }
/// Returns nanoseconds of a monotonic clock.
int64_t now();

/// One event of the trace: "host" and "compile" have a lane per thread, any other name is that of a device.
inline constexpr const char *kHost = "host", *kCompile = "compile";
/// What an event has to do with events of other processes: the n-th of a process belongs to the n-th of the others with
/// the same number, and an arrow leads from the one that begins it to the one that ends it.
struct Flow {
  enum class Role : uint8_t { kNone, kBegins, kPasses, kEnds };
  uint64_t number = 0;
  Role role = Role::kNone;
};
/// Records an event from `begin` to `end`; `details` are values and texts shown with it: "ops=12 bytes=3". PROFILE_FILE
/// is written at exit.
void record(std::string_view track, std::string name, int64_t begin, int64_t end, std::string details = {},
            Flow flow = {});

/// Records its own lifetime.
class Span {
 public:
  Span(const char* track, std::string_view name) : track_(track), begin_(on() ? now() : -1) {
    if (begin_ >= 0) name_ = name;
  }
  ~Span() {
    if (begin_ >= 0) record(track_, std::move(name_), begin_, now(), std::move(details_));
  }
  Span(const Span&) = delete;
  bool recording() const { return begin_ >= 0; }
  void rename(std::string name) { name_ = std::move(name); }
  void details(std::string text) { details_ = std::move(text); }

 private:
  const char* track_;
  int64_t begin_;
  std::string name_, details_;
};

/// Returns the events so far as JSON in the trace event format; processes are the tracks.
std::string json();

/// What was seen when two clocks were compared: another process' clock is ahead of ours by `offset`, at most `error`
/// more or less. Nanoseconds of now().
struct ClockMatch {
  int64_t at = 0, offset = 0, error = 0;
};
/// Where the events of a process stand in the trace of several: times are of the clock that both matches are with,
/// linear between the two.
struct InWorld {
  int rank = 0;
  std::string host{};
  int64_t origin = 0;  ///< time 0 of the trace, of that clock
  ClockMatch first{}, last{};
};
/// Returns the events of this process as a part of the trace of several, and what is said of it beside them.
struct Part {
  std::string events, about;
};
Part part_of(const InWorld& place);
/// Returns the trace of several processes.
std::string joined(const std::vector<Part>& parts);
/// Returns PROFILE_FILE as it was when events were recorded, or where the profile goes without it. `rank`: of a process
/// of several that writes alone, whose file has the rank in its name; -1: of one.
std::string file(int rank = -1);
/// Sets what is done before a file is written at exit, after which there may be nothing to write; and the rank of a
/// process that then writes alone.
void at_exit_first(void (*action)(), int rank);

/// Writes it, or another text. Throws FileError when the file cannot be written.
void write(const std::string& path);
void write(const std::string& path, const std::string& text);
/// Forgets everything recorded.
void clear();
int64_t events();

}  // namespace tg::profile
