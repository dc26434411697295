/// \file Recorded events and their JSON.
#include "tinygrad/base/profile.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/recording.h"

namespace tg::profile {
namespace {

struct Event {
  int track, lane;
  int64_t begin, end;
  std::string name, details;
  Flow flow;
};
constexpr size_t kMaxEvents = 4'000'000;

struct Trace {
  std::mutex mutex;
  std::vector<Event> events;
  std::vector<std::string> tracks;
  std::map<std::pair<int, std::thread::id>, int> lanes;
  std::map<int, int> lane_count;
  int64_t dropped = 0;
  bool at_exit = false;
  std::string file;
  void (*first)() = nullptr;  // done before the file is written at exit
  int alone = -1;             // rank of a process of several
};
Trace& trace() {
  static auto* r = new Trace;  // written by an exit handler
  return *r;
}

int track_of(Trace& r, std::string_view name) {
  for (size_t i = 0; i < r.tracks.size(); i++)
    if (r.tracks[i] == name) return static_cast<int>(i);
  r.tracks.emplace_back(name);
  return static_cast<int>(r.tracks.size()) - 1;
}

/// Returns the lane of an event: host and compiler have one per thread, a device has one.
int lane_of(Trace& r, int track, std::string_view name) {
  if (name != kHost && name != kCompile) return 0;
  auto [it, fresh] = r.lanes.try_emplace({track, std::this_thread::get_id()}, 0);
  if (fresh) it->second = r.lane_count[track]++;
  return it->second;
}

void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else out += c;
  }
  out += '"';
}

void append_line(std::string& out, const std::string& line) {
  out += out.empty() || out.back() == '[' ? "\n" : ",\n";
  out += line;
}

std::string named(const char* what, int pid, int tid, std::string_view name) {
  std::string line =
      str("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid, ",\"args\":{\"name\":");
  append_text(line, name);
  return line + "}}";
}

void write_at_exit() {
  try {
    if (trace().first) trace().first();
    if (events() == 0) return;
    const std::string path = file(trace().alone);
    write(path);
    note_lines("profile: " + path);
  } catch (const Error& e) { note_lines(e.what()); }
}

/// How events are written: for every track a process of the trace from `first_pid` on.
struct Layout {
  int first_pid = 1;
  std::string label{};               ///< before the names of tracks
  double origin = 0;                 ///< nanoseconds that are time 0
  const InWorld* place = nullptr;    ///< null: the only process
  double time_of(int64_t t) const {  ///< nanoseconds of the trace
    if (!place) return static_cast<double>(t) - origin;
    const ClockMatch &a = place->first, &b = place->last;
    const double share = b.at > a.at ? static_cast<double>(t - a.at) / static_cast<double>(b.at - a.at) : 0;
    return static_cast<double>(t + a.offset) + share * static_cast<double>(b.offset - a.offset) - origin;
  }
};

void append_tracks(std::string& out, const Trace& r, const Layout& o) {
  for (size_t t = 0; t < r.tracks.size(); t++) {
    const int pid = static_cast<int>(t) + o.first_pid;
    append_line(out, named("process_name", pid, 0, o.label + r.tracks[t]));
    append_line(out, str("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":", pid,
                         ",\"tid\":0,\"args\":{\"sort_index\":", pid, "}}"));
  }
  for (const auto& [key, lane] : r.lanes)
    append_line(out, named("thread_name", key.first + o.first_pid, lane, str("thread ", lane)));
}

/// Arrows begin with the event of one process and end within that of another.
void append_flow(std::string& out, const Event& e, const Layout& o, int64_t count) {
  const bool begins = e.flow.role == Flow::Role::kBegins, ends = e.flow.role == Flow::Role::kEnds;
  char text[200];
  std::snprintf(text, sizeof text,
                "{\"ph\":\"%s\",%s\"cat\":\"world\",\"name\":\"exchange\",\"id\":\"%llx.%lld\",\"pid\":%d,\"tid\":%d,"
                "\"ts\":%.3f}",
                begins ? "s"
                : ends ? "f"
                       : "t",
                ends ? "\"bp\":\"e\"," : "", static_cast<unsigned long long>(e.flow.number),
                static_cast<long long>(count), e.track + o.first_pid, e.lane,
                (begins ? o.time_of(e.begin) : o.time_of(e.end)) * 1e-3);
  append_line(out, text);
}

void append_events(std::string& out, const Trace& r, const Layout& o) {
  std::map<uint64_t, int64_t> flows;
  for (const Event& e : r.events) {
    char times[96];
    std::snprintf(times, sizeof times, "\"ts\":%.3f,\"dur\":%.3f", o.time_of(e.begin) * 1e-3,
                  (o.time_of(e.end) - o.time_of(e.begin)) * 1e-3);
    std::string line =
        str("{\"ph\":\"X\",\"pid\":", e.track + o.first_pid, ",\"tid\":", e.lane, ",", times, ",\"name\":");
    append_text(line, e.name);
    if (!e.details.empty()) {
      line += ",\"args\":{\"details\":";
      append_text(line, e.details);
      line += "}";
    }
    append_line(out, line + "}");
    if (o.place && e.flow.role != Flow::Role::kNone) append_flow(out, e, o, flows[e.flow.number]++);
  }
}

constexpr const char *kTraceBegin = "{\"traceEvents\":[", *kTraceEnd = "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{";
}  // namespace

int64_t now() { return recording::now(); }

void record(std::string_view track, std::string name, int64_t begin, int64_t end, std::string details, Flow flow) {
  Trace& r = trace();
  std::lock_guard lock(r.mutex);
  if (recording::on()) {
    const int t = track_of(r, track);
    return recording::event(track, lane_of(r, t, track), name, begin, end, details);
  }
  r.file = env::PROFILE_FILE.get();
  if (!r.at_exit) {
    r.at_exit = true;
    std::atexit(write_at_exit);
  }
  if (r.events.size() >= kMaxEvents) {
    r.dropped++;
    return;
  }
  const int t = track_of(r, track);
  r.events.push_back({t, lane_of(r, t, track), begin, end, std::move(name), std::move(details), flow});
}

std::string json() {
  Trace& r = trace();
  std::lock_guard lock(r.mutex);
  int64_t origin = r.events.empty() ? 0 : r.events[0].begin;
  for (const Event& e : r.events) origin = std::min(origin, e.begin);
  const Layout layout{.origin = static_cast<double>(origin)};
  std::string out = kTraceBegin;
  append_tracks(out, r, layout);
  append_events(out, r, layout);
  return out + str(kTraceEnd, "\"dropped\":", r.dropped, "}}\n");
}

Part part_of(const InWorld& place) {
  Trace& r = trace();
  std::lock_guard lock(r.mutex);
  // Room for a thousand tracks of a process.
  const Layout layout{.first_pid = place.rank * 1000 + 1,
                      .label = str("rank ", place.rank, place.host.empty() ? "" : " on " + place.host, ": "),
                      .origin = static_cast<double>(place.origin),
                      .place = &place};
  Part part;
  append_tracks(part.events, r, layout);
  append_events(part.events, r, layout);
  part.about =
      str("\"rank ", place.rank, "\":{\"clock_offset_ns\":", place.first.offset,
          ",\"clock_drift_ns\":", place.last.offset - place.first.offset,
          ",\"clock_error_ns\":", std::max(place.first.error, place.last.error), ",\"dropped\":", r.dropped, "}");
  return part;
}

std::string joined(const std::vector<Part>& parts) {
  std::string events, about;
  for (const Part& p : parts) {
    if (!p.events.empty()) events += (events.empty() ? "" : ",") + p.events;
    about += (about.empty() ? "" : ",") + p.about;
  }
  return str(kTraceBegin, events, kTraceEnd, about, "}}\n");
}

std::string file(int rank) {
  std::filesystem::path path = trace().file.empty() ? env::PROFILE_FILE.get() : trace().file;
  if (path.empty()) {
    std::error_code none;
    path = std::filesystem::temp_directory_path(none) / "tinygrad_profile.json";
  }
  if (rank >= 0) path.replace_extension(str(".", rank, path.extension().string()));
  return path.string();
}

void at_exit_first(void (*action)(), int rank) {
  trace().first = action;
  trace().alone = rank;
}

void write(const std::string& path) { write(path, json()); }
void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  TG_CHECK(FileError, file.good(), "[profile] cannot write ", path);
}

void clear() {
  Trace& r = trace();
  std::lock_guard lock(r.mutex);
  r.events.clear();
  r.tracks.clear();
  r.lanes.clear();
  r.lane_count.clear();
  r.dropped = 0;
}

int64_t events() {
  Trace& r = trace();
  std::lock_guard lock(r.mutex);
  return static_cast<int64_t>(r.events.size());
}

}  // namespace tg::profile
