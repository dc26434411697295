/// \file A segment of a sum: each process combines its part of it.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tinygrad/runtime/world/exchange_kinds.h"
#include "tinygrad/runtime/world/room.h"

namespace tg {

/// Returns the position of rank `me` in a group.
size_t position_of(const std::vector<int>& group, int me);

/// Values of all processes, of which this one combines as many bytes as it has itself.
class Combined {
 public:
  Combined(const Collective& c, size_t me) : c_(c), me_(me) {}
  /// Posts receives of what the others have.
  void receive(Messages& messages, size_t bytes, int tag);
  /// Combines `own` with what was received, in the order of the group.
  void combine_into(std::byte* out, const std::byte* own, size_t bytes);

 private:
  const Collective& c_;
  size_t me_;
  std::optional<Room> received_;
};

/// What each process combines: the bytes that process p does, and where they go.
struct Chunks {
  std::vector<std::span<const std::byte>> from;
  std::vector<std::byte*> to;  ///< null for those of others: then each keeps its own
};

/// Process p combines chunk p, and sends it to all. Uses the tags `tag` and `tag` + 1.
class Segment final : public TwoRounds {
 public:
  /// `c`, of which group, operation and type count, outlives it.
  Segment(Mpi& mpi, const Collective& c, size_t me, int tag, Chunks chunks);

 private:
  void second_round() override;
  const Collective& c_;
  Combined combined_;
  size_t me_;
  int tag_;
  Chunks chunks_;
};

/// Returns `n` consecutive parts of whole elements, near-equal: the bytes at which each begins, and the end.
std::vector<size_t> parts_of(size_t bytes, size_t n, size_t element);
/// Returns those parts of memory as chunks of n processes.
Chunks chunks_of(const std::byte* from, std::byte* to, size_t bytes, size_t n, size_t element);

}  // namespace tg
