/// \file Which messages an operation is made of: what each way costs, and the cheapest.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tinygrad/runtime/world/collective.h"

namespace tg {

enum class Algorithm : uint8_t {
  kDirect,     ///< everybody sends to everybody who needs it, in one round
  kDoubling,   ///< sums of little: in round k with the process whose position differs in bit k
  kTree,       ///< broadcast: who has the value sends it on, so that twice as many have it after each round
  kParts,      ///< each process combines, or gets first, a part, and sends it to all
  kHierarchy,  ///< first within each machine, then between machines, then within each again
};

/// The processes of a group by machine, each with as many, in the order of the group.
struct Hierarchy {
  std::vector<std::vector<int>> ranks;  ///< by machine, by place
  size_t machine = 0, place = 0;        ///< of this process
  size_t machines() const { return ranks.size(); }
  size_t places() const { return ranks[0].size(); }
  const std::vector<int>& local() const { return ranks[machine]; }
  /// Returns the processes at this one's place, of all machines.
  std::vector<int> cross() const;
};
/// Returns that of process `me`; nothing when it makes no difference, or machines have unequal numbers of processes.
/// `machines`: a number for each rank of the world.
std::optional<Hierarchy> hierarchy_of(const std::vector<int>& group, int me, std::span<const int> machines);

/// Returns what all processes of the group choose.
Algorithm algorithm_of(const Collective& c, int me, std::span<const int> machines);
/// Returns the bytes that process `me` sends.
int64_t sent_bytes(const Collective& c, int me, std::span<const int> machines);

}  // namespace tg
