/// \file The profile: when the host, the compiler and the devices did what, as a trace for Perfetto and Chrome.
/// Recorded under PROFILE=1; under VIZ=1 the events are part of the recording (recording.h) instead.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "tinygrad/base/env.h"

namespace tg::profile {

/// Says whether PROFILE is set, so that nothing is measured when nobody asked.
inline bool on() { return static_cast<bool>(env::PROFILE); }
/// Returns nanoseconds of a monotonic clock.
int64_t now();

/// One event of the trace: "host" and "compile" have a lane per thread, any other name is that of a device.
inline constexpr const char *kHost = "host", *kCompile = "compile";
/// Records an event from `begin` to `end`; `details` are values and texts shown with it: "ops=12 bytes=3". PROFILE_FILE
/// is written at exit.
void record(std::string_view track, std::string name, int64_t begin, int64_t end, std::string details = {});

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
/// Writes it. Throws FileError when the file cannot be written.
void write(const std::string& path);
/// Forgets everything recorded.
void clear();
int64_t events();

}  // namespace tg::profile
