/// \file The recording that `tg viz` shows: what every part of the system did, as records in a file. Written under
/// VIZ=1; docs/viz.md describes the format.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "tinygrad/base/env.h"
#include "tinygrad/base/recording_format.h"

namespace tg::recording {

inline bool on() { return static_cast<bool>(env::VIZ); }
/// Returns whether something has been recorded since the last finish(), by any thread.
bool begun();
/// Returns the number of the recording that is being written: what it has told its reader, another one has not.
uint64_t generation();

/// Returns nanoseconds of a monotonic clock.
int64_t now();
/// Returns the number of a text that many records repeat. Numbers begin at 1; 0 stands for the empty text.
uint64_t name(std::string_view text);

/// Builds one record; its destructor appends it to what this thread has recorded.
class Record {
 public:
  explicit Record(Kind kind);
  ~Record();
  Record(const Record&) = delete;
  Record& number(uint64_t v);
  Record& time(int64_t nanoseconds) { return number(static_cast<uint64_t>(nanoseconds)); }
  Record& difference(int64_t v) { return number(static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63)); }
  Record& text(std::string_view s);

 private:
  std::string bytes_;
};

/// A part of the work, inside of the one that is open on this thread: a schedule, a kernel, a pass. Does nothing where
/// nothing is recorded.
class Span {
 public:
  Span(std::string_view kind, std::string_view name);
  ~Span();
  Span(const Span&) = delete;
  bool recording() const { return number_ != 0; }
  uint64_t number() const { return number_; }
  void value(std::string_view key, std::string_view text) const;
  void text(std::string_view title, std::string_view language, std::string_view text) const;
  /// Returns the innermost span of this thread; 0: none is open.
  static uint64_t current();

 private:
  bool recorded() const;
  uint64_t number_ = 0, outer_ = 0, generation_ = 0;
};

/// Makes a span of another thread the one that spans of this thread are parts of, for work that is handed out.
class Inside {
 public:
  explicit Inside(uint64_t span);
  ~Inside();
  Inside(const Inside&) = delete;

 private:
  uint64_t outer_;
};

/// Records an event on a track of the timeline: a device, the host, the compiler.
void event(std::string_view track, int lane, std::string_view name, int64_t begin, int64_t end,
           std::string_view details);
/// Records memory that was taken (bytes > 0) or given back.
void memory(std::string_view device, const void* address, int64_t bytes);

/// Records how often a rule was tried and fired, and how long that took.
void rule_total(std::string_view rule, uint64_t tries, uint64_t hits, uint64_t nanoseconds);
/// Calls `write` at the end of each recording.
void before_finish(void (*write)());

/// Writes what all threads have recorded so far, so that another process may read it.
void flush();
/// Ends the recording: writes what is left, and totals. The next record begins a new file. Called at exit.
void finish();
/// Returns the file of the recording that is being written; empty before the first record.
std::string path();
/// Returns the file that VIZ_FILE names, or last.viz in the folder for caches.
std::string default_path();

}  // namespace tg::recording
