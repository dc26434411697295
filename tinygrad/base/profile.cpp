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
  out += out.size() > 20 ? ",\n" : "\n";
  out += line;
}

std::string named(const char* what, int pid, int tid, std::string_view name) {
  std::string line =
      str("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid, ",\"args\":{\"name\":");
  append_text(line, name);
  return line + "}}";
}

std::string file_of(const std::string& named) {
  if (!named.empty()) return named;
  std::error_code none;
  return (std::filesystem::temp_directory_path(none) / "tinygrad_profile.json").string();
}

void write_at_exit() {
  try {
    if (events() == 0) return;
    const std::string path = file_of(trace().file);
    write(path);
    note_lines("profile: " + path);
  } catch (const Error& e) { note_lines(e.what()); }
}

}  // namespace

int64_t now() { return recording::now(); }

void record(std::string_view track, std::string name, int64_t begin, int64_t end, std::string details) {
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
  r.events.push_back({t, lane_of(r, t, track), begin, end, std::move(name), std::move(details)});
}

std::string json() {
  Trace& r = trace();
  std::lock_guard lock(r.mutex);
  std::string out = "{\"traceEvents\":[";
  for (size_t t = 0; t < r.tracks.size(); t++) {
    const int pid = static_cast<int>(t) + 1;
    append_line(out, named("process_name", pid, 0, r.tracks[t]));
    append_line(out, str("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":", pid,
                         ",\"tid\":0,\"args\":{\"sort_index\":", pid, "}}"));
  }
  for (const auto& [key, lane] : r.lanes)
    append_line(out, named("thread_name", key.first + 1, lane, str("thread ", lane)));
  int64_t origin = r.events.empty() ? 0 : r.events[0].begin;
  for (const Event& e : r.events) origin = std::min(origin, e.begin);
  for (const Event& e : r.events) {
    char times[96];
    std::snprintf(times, sizeof times, "\"ts\":%.3f,\"dur\":%.3f", static_cast<double>(e.begin - origin) * 1e-3,
                  static_cast<double>(e.end - e.begin) * 1e-3);
    std::string line = str("{\"ph\":\"X\",\"pid\":", e.track + 1, ",\"tid\":", e.lane, ",", times, ",\"name\":");
    append_text(line, e.name);
    if (!e.details.empty()) {
      line += ",\"args\":{\"details\":";
      append_text(line, e.details);
      line += "}";
    }
    append_line(out, line + "}");
  }
  out += str("\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped\":", r.dropped, "}}\n");
  return out;
}

void write(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << json();
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
