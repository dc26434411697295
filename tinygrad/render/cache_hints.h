/// \file Cache hints of a kernel on a host: stores that go past the caches (non-temporal) and rows that are prefetched.
///
/// A store into memory larger than the last level cache reads every line first, for nothing, and evicts lines that
/// others need: whole lines go past the caches instead. A kernel with several passes over a row computes in the later
/// ones while memory waits: they prefetch the next row, and the lines of the result that the last one stores.
#pragma once
#include <vector>

#include "tinygrad/render/program_view.h"

namespace tg {

/// The decisions for one program, by the sizes of the target's caches.
class CacheHints {
 public:
  CacheHints(const ProgramView& view, const Target& target);
  /// True for a STORE of whole registers that should not go through the caches where its buffer begins at a multiple of
  /// kLine.
  bool is_nontemporal(UOp store) const { return hint(store).nontemporal; }
  /// Returns how many elements behind a LOAD memory should be prefetched; 0: nowhere.
  int64_t prefetch_distance(UOp load) const { return hint(load).distance; }
  /// Returns the memory that a later pass stores to where this LOAD of an earlier one reads: its lines should be
  /// prefetched, too; empty: none.
  UOp later_store(UOp load) const { return hint(load).later_store; }
  /// True for slots with non-temporal stores.
  bool has_nontemporal_stores(int64_t slot) const { return slots_[static_cast<size_t>(slot)]; }
  bool any_nontemporal() const;

  static constexpr int64_t kLine = 64;

 private:
  struct Hint {
    bool nontemporal = false;
    int64_t distance = 0;
    UOp later_store{};
  };
  struct Loop {
    UOp range;
    int parent;  ///< -1: none
  };
  struct Access;
  const Hint& hint(UOp u) const { return hints_[static_cast<size_t>(view_.position(u))]; }
  Hint& hint(UOp u) { return hints_[static_cast<size_t>(view_.position(u))]; }
  UOp range(int loop) const { return loops_[static_cast<size_t>(loop)].range; }
  int parent(int loop) const { return loops_[static_cast<size_t>(loop)].parent; }
  void collect(std::vector<Access>* loads, std::vector<Access>* stores);
  bool fills_lines(const Access& store, const std::vector<Access>& stores) const;
  int64_t next_row(const Access& load, const std::vector<Access>& loads) const;

  const ProgramView& view_;
  const Target& target_;
  std::vector<Hint> hints_;  // by position
  std::vector<Loop> loops_;
  std::vector<bool> slots_, read_;  // non-temporal stores, loads, by slot
};

}  // namespace tg
