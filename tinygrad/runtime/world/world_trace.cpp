/// \file The profiles of all processes of a world as one trace: their clocks compared, their events gathered.
#include "tinygrad/runtime/world/world_trace.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/output.h"
#include "tinygrad/runtime/world/world.h"

namespace tg::distributed {
namespace {
constexpr int kQuestions = 16;

void send(int to, const void* data, size_t bytes) {
  run({.what = CollectiveKind::kSend, .dtype = dtypes::uint8, .elements = static_cast<int64_t>(bytes), .root = to},
      data, const_cast<void*>(data));
}
void receive(int from, void* data, size_t bytes) {
  run({.what = CollectiveKind::kReceive, .dtype = dtypes::uint8, .elements = static_cast<int64_t>(bytes), .root = from},
      data, data);
}
void send_text(int to, const std::string& text) {
  const int64_t bytes = std::ssize(text);
  send(to, &bytes, sizeof bytes);
  send(to, text.data(), text.size());
}
std::string receive_text(int from) {
  int64_t bytes = 0;
  receive(from, &bytes, sizeof bytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  receive(from, text.data(), text.size());
  return text;
}

/// Returns rank 0's number.
int64_t broadcast(int64_t number) {
  Collective c{.what = CollectiveKind::kBroadcast, .dtype = dtypes::uint8, .elements = sizeof number};
  c.group.resize(static_cast<size_t>(size()));
  std::iota(c.group.begin(), c.group.end(), 0);
  run(c, &number, &number);
  return number;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}
}  // namespace

profile::ClockMatch match_of(std::span<const ClockSample> samples) {
  const auto trip = [](const ClockSample& s) { return s.answered - s.sent; };
  const ClockSample& best = *std::ranges::min_element(samples, {}, trip);
  const int64_t middle = best.sent + trip(best) / 2;
  return {.at = middle, .offset = best.theirs - middle, .error = (trip(best) + 1) / 2};
}

profile::ClockMatch match_clocks() {
  if (rank() == 0) {
    for (int r = 1; r < size(); r++)
      for (int i = 0; i < kQuestions; i++) {
        int64_t asked = 0;
        receive(r, &asked, sizeof asked);
        const int64_t now = profile::now();
        send(r, &now, sizeof now);
      }
    return {.at = profile::now()};
  }
  std::vector<ClockSample> samples(kQuestions);
  for (ClockSample& s : samples) {
    s.sent = profile::now();
    send(0, &s.sent, sizeof s.sent);
    receive(0, &s.theirs, sizeof s.theirs);
    s.answered = profile::now();
  }
  return match_of(samples);
}

void write_world_trace(const profile::ClockMatch& first) {
  barrier();  // those that come late do not look slow to answer
  const profile::ClockMatch last = match_clocks();
  profile::Part mine = profile::part_of(
      {.rank = rank(), .host = host_name(), .origin = broadcast(first.at), .first = first, .last = last});
  if (rank() > 0) {
    send_text(0, mine.events);
    send_text(0, mine.about);
  } else {
    std::vector<profile::Part> parts{std::move(mine)};
    for (int r = 1; r < size(); r++) {
      std::string events = receive_text(r);
      parts.push_back({std::move(events), receive_text(r)});
    }
    const std::string path = profile::file();
    profile::write(path, profile::joined(parts));
    note_lines(str("profile: ", path, " of ", size(), " processes"));
  }
  profile::clear();
}

}  // namespace tg::distributed
