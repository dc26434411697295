/// \file The cost of messages. Times are told in bytes: as many as pass a link meanwhile.
#include "tinygrad/runtime/world/algorithm.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

namespace tg {
namespace {

/// From sending to receiving: latency times bandwidth, which is about the same between processes of a machine (1 us, 5
/// GB/s) and on a link of 1 Gbit/s (50 us).
constexpr double kRoundBytes = 8 << 10;
/// Posting a message.
constexpr double kPostBytes = 2 << 10;
/// Sums of more bytes are not computed by everybody: combining would take longer than sending.
constexpr size_t kSmallBytes = 64 << 10;
/// How much sooner the processes of a machine have a byte from each other than from another machine, at least.
constexpr double kLocalShare = 0.25;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Choice {
  Algorithm algorithm;
  double cost;
};
Algorithm cheapest(std::initializer_list<Choice> choices) {
  return std::ranges::min_element(choices, {}, &Choice::cost)->algorithm;
}

/// Whether partial sums of a type may be sent: those of narrow floats would be rounded each time.
bool may_round_often(DType d) { return !d.is_float() || d.itemsize() >= 4; }

int rounds_of_doubling(size_t n) {
  const size_t square = std::bit_floor(n);
  return std::countr_zero(square) + (square == n ? 0 : 2);
}

Algorithm way_to_sum(const Collective& c, const std::optional<Hierarchy>& h) {
  const auto n = static_cast<double>(c.group.size()), bytes = static_cast<double>(c.piece_bytes());
  const bool small = c.piece_bytes() <= kSmallBytes;
  const int rounds = rounds_of_doubling(c.group.size());
  double parts = 2 * kRoundBytes + 2 * (n - 1) * (bytes / n + kPostBytes), levels = kNever;
  if (h && may_round_often(c.dtype)) {  // a link carries what all processes of a machine send
    const auto local = static_cast<double>(h->places()), machines = static_cast<double>(h->machines());
    const double between = 2 * (machines - 1) / machines * bytes;
    parts += between * local - 2 * (n - 1) / n * bytes;
    levels = 4 * kRoundBytes + 2 * (local + machines - 2) * kPostBytes + between +
             kLocalShare * 2 * (local - 1) / local * bytes;
  }
  return cheapest(
      {{Algorithm::kDirect, small ? kRoundBytes + (n - 1) * (bytes + kPostBytes) : kNever},
       {Algorithm::kDoubling, small && may_round_often(c.dtype) ? rounds * (kRoundBytes + bytes + kPostBytes) : kNever},
       {Algorithm::kParts, parts},
       {Algorithm::kHierarchy, levels}});
}

/// Of reduce_scatter and all_gather, whose pieces each process has for, or gets from, every other one.
Algorithm way_to_spread(const Collective& c, const std::optional<Hierarchy>& h) {
  const bool sums = c.what == CollectiveKind::kReduceScatter;
  const Algorithm flat = sums ? Algorithm::kParts : Algorithm::kDirect;
  if (!h || (sums && !may_round_often(c.dtype))) return flat;
  const auto local = static_cast<double>(h->places()), machines = static_cast<double>(h->machines());
  const auto bytes = static_cast<double>(c.piece_bytes());
  const double between = local * (machines - 1) * bytes;  // on a link, at least
  return cheapest({{flat, kRoundBytes + (local * machines - 1) * kPostBytes + local * between},
                   {Algorithm::kHierarchy, 2 * kRoundBytes + (local * machines + machines - 2) * kPostBytes + between +
                                               kLocalShare * local * (local - 1) * machines * bytes}});
}

Algorithm way_to_broadcast(const Collective& c) {
  const auto n = static_cast<double>(c.group.size()), bytes = static_cast<double>(c.piece_bytes());
  const double rounds = std::bit_width(c.group.size() - 1);
  return cheapest({{Algorithm::kDirect, kRoundBytes + (n - 1) * (bytes + kPostBytes)},
                   {Algorithm::kTree, rounds * (kRoundBytes + bytes + kPostBytes)},
                   {Algorithm::kParts, 2 * kRoundBytes + 2 * (n - 1) * (bytes / n + kPostBytes)}});
}

Algorithm way_of(const Collective& c, const std::optional<Hierarchy>& h) {
  switch (c.what) {
    case CollectiveKind::kAllReduce: return way_to_sum(c, h);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather: return way_to_spread(c, h);
    case CollectiveKind::kBroadcast: return way_to_broadcast(c);
    default: return Algorithm::kDirect;
  }
}

/// Returns how many processes this one sends a broadcast to in a tree.
int64_t children_of(int64_t place, int64_t n) {
  int64_t count = 0;
  for (int64_t bit = 1; bit < n && !(place & bit); bit *= 2) count += place + bit < n;
  return count;
}

}  // namespace

std::vector<int> Hierarchy::cross() const {
  std::vector<int> out;
  for (const std::vector<int>& m : ranks) out.push_back(m[place]);
  return out;
}

std::optional<Hierarchy> hierarchy_of(const std::vector<int>& group, int me, std::span<const int> machines) {
  std::map<int, std::vector<int>> by_machine;
  for (const int r : group) by_machine[machines[static_cast<size_t>(r)]].push_back(r);
  const size_t here = by_machine.at(machines[static_cast<size_t>(me)]).size();
  if (by_machine.size() == 1 || here == 1) return std::nullopt;
  Hierarchy h;
  for (auto& [machine, ranks] : by_machine) {
    if (ranks.size() != here) return std::nullopt;
    if (const auto it = std::ranges::find(ranks, me); it != ranks.end()) {
      h.machine = h.ranks.size();
      h.place = static_cast<size_t>(it - ranks.begin());
    }
    h.ranks.push_back(std::move(ranks));
  }
  return h;
}

Algorithm algorithm_of(const Collective& c, int me, std::span<const int> machines) {
  return way_of(c, c.group.empty() ? std::nullopt : hierarchy_of(c.group, me, machines));
}

int64_t sent_bytes(const Collective& c, int me, std::span<const int> machines) {
  const auto n = static_cast<int64_t>(c.group.size()), bytes = static_cast<int64_t>(c.piece_bytes());
  const std::optional<Hierarchy> h =
      n > 1 && c.what != CollectiveKind::kSend ? hierarchy_of(c.group, me, machines) : std::nullopt;
  const Algorithm way = way_of(c, h);
  const bool levels = way == Algorithm::kHierarchy;
  const int64_t local = levels ? static_cast<int64_t>(h->places()) : 1,
                cross = levels ? static_cast<int64_t>(h->machines()) : 1;
  switch (c.what) {
    case CollectiveKind::kAllReduce:
      if (way == Algorithm::kDirect) return (n - 1) * bytes;
      if (way == Algorithm::kDoubling) return rounds_of_doubling(c.group.size()) * bytes;
      if (levels) return (2 * (local - 1) * bytes + 2 * (cross - 1) * bytes / cross) / local;
      return 2 * (n - 1) * bytes / n;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather: return levels ? ((local - 1) * cross + cross - 1) * bytes : (n - 1) * bytes;
    case CollectiveKind::kAllToAll: return (n - 1) * bytes;
    case CollectiveKind::kBroadcast: {
      const int64_t at = std::ranges::find(c.group, me) - c.group.begin(), place = (at - c.root + n) % n;
      if (way == Algorithm::kTree) return children_of(place, n) * bytes;
      if (way == Algorithm::kParts) return (place == 0 ? 2 * n - 2 : n - 2) * bytes / n;
      return place == 0 ? (n - 1) * bytes : 0;
    }
    case CollectiveKind::kSend: return bytes;
    case CollectiveKind::kReceive: return 0;
  }
  return 0;
}

}  // namespace tg
