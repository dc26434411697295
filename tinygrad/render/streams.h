/// \file What a kernel on a host asks of the caches beside its loads and stores: lines that are written past them, rows
/// that are fetched ahead.
///
/// A store into memory larger than the last level cache reads every line first, for nothing, and drives out what others
/// need: whole lines go past the caches instead. A kernel with several passes over a row computes in the later ones
/// while memory waits: they fetch the next row, and the lines of the result that the last one stores.
#pragma once
#include <vector>

#include "tinygrad/render/linear.h"

namespace tg {

/// The decisions for one program, by the sizes of the target's caches.
class Streams {
 public:
  Streams(const LinearView& view, const Target& target);
  /// True for a STORE of whole registers that should not pass through the caches where its buffer begins at a multiple
  /// of kLine.
  bool bypasses(UOp store) const { return flag(store).bypass; }
  /// How many elements after what a LOAD reads memory should be fetched, too; 0: nowhere.
  int64_t ahead(UOp load) const { return flag(load).ahead; }
  /// Memory that a later pass stores at the place where this LOAD of an earlier one reads: its lines should be fetched,
  /// too; empty: none.
  UOp written_later(UOp load) const { return flag(load).written_later; }
  /// Slots that are stored past the caches.
  bool bypasses_slot(int64_t slot) const { return slots_[static_cast<size_t>(slot)]; }
  bool any_bypass() const;

  static constexpr int64_t kLine = 64;

 private:
  struct Flag {
    bool bypass = false;
    int64_t ahead = 0;
    UOp written_later{};
  };
  const Flag& flag(UOp u) const { return flags_[static_cast<size_t>(view_.position(u))]; }
  const LinearView& view_;
  std::vector<Flag> flags_;  // by position
  std::vector<bool> slots_;
};

}  // namespace tg
