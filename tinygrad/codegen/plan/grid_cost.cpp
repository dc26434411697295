/// \file The model of grids.
#include "tinygrad/codegen/plan/grid_cost.h"

#include <algorithm>
#include <cmath>

namespace tg {
namespace {
constexpr double kLatency = 600;     // nanoseconds until memory answers
constexpr int64_t kMostGroups = 32;  // of a processor at a time
constexpr double kStart = 200;       // clocks until a processor has begun a group in the place of another one
constexpr double kBarrier = 40;      // clocks that a group waits for its last warp
constexpr double kInTurn = 0.1;      // part of what is not the longest that does not overlap with it
constexpr double kLaunch = 3000;     // clocks until the first group runs

int64_t parts(int64_t n, int64_t each) { return (n + each - 1) / each; }
}  // namespace

/// By Little's law as many bytes have to be under way as memory gives in the time until it answers: those of all
/// threads that a processor has at a time.
GridCost grid_cost(const GridLoad& l, const GpuFigures& gpu) {
  GridCost c;
  const int64_t warps = parts(l.threads, gpu.warp);
  c.groups_at_once = std::min({gpu.warps / warps, gpu.registers / (l.registers * warps * gpu.warp), kMostGroups});
  if (l.shared_bytes) c.groups_at_once = std::min(c.groups_at_once, gpu.shared_bytes / l.shared_bytes);
  if (l.registers > gpu.registers_each || c.groups_at_once < 1) return {};
  const int64_t own = parts(l.groups, gpu.units), together = std::min(c.groups_at_once, own);
  c.occupancy = static_cast<double>(c.groups_at_once * warps) / gpu.warps;
  const double busy = static_cast<double>(std::min<int64_t>(l.groups, gpu.units)), latency = kLatency * gpu.clock;
  const double each = std::min(gpu.l2, static_cast<double>(together * l.threads) * l.in_flight / latency);
  // A last wave that fills a part of the processors takes as long as a full one.
  const double uneven = static_cast<double>(own) * busy / static_cast<double>(l.groups);
  c.memory = l.bytes / std::min(gpu.memory / gpu.clock, busy * each) * uneven;
  c.issue = static_cast<double>(own * warps) * l.instructions /
            static_cast<double>(std::min<int64_t>(gpu.schedulers, together * warps));
  c.wait = latency + static_cast<double>(parts(own, together)) * (kStart + static_cast<double>(l.barriers) * kBarrier);
  c.clocks = std::max(c.memory, c.issue) + kInTurn * std::min(c.memory, c.issue) + c.wait + kLaunch;
  return c;
}

}  // namespace tg
