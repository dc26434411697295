/// \file Which stores pass by the caches, and which loads fetch the next row.
#include "tinygrad/render/streams.h"

#include <algorithm>

#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
/// An index as it is lowered: a sum of multiples of loops, an offset, and what is none of these.
struct Walk {
  std::vector<std::pair<UOp, int64_t>> loops;
  int64_t offset = 0, rest = 0;  ///< rest: a number that divides all other summands; 0: there are none
  int64_t along(UOp range) const {
    for (const auto& [r, k] : loops)
      if (r == range) return k;
    return 0;
  }
  /// True when lane 0 is always at a multiple of n.
  bool at_multiples_of(int64_t n) const {
    return offset % n == 0 && rest % n == 0 &&
           std::all_of(loops.begin(), loops.end(), [&](const auto& l) { return l.second % n == 0; });
  }
};
Walk walk_of(UOp index) {
  struct Summand {
    UOp u;
    int64_t factor;
    bool always;  ///< false: one of two, where a last part overlaps the one before
  };
  Walk w;
  std::vector<Summand> stack{{index, 1, true}};
  while (!stack.empty()) {
    auto [u, k, always] = stack.back();
    stack.pop_back();
    auto constant = [&](size_t i) { return static_cast<int64_t>(u.src(i).const_int()); };
    auto divides = [&](int64_t n) {
      w.rest |= n;  // the lowest bit of all: enough for powers of two
      w.rest &= -w.rest;
    };
    if (u.is(Ops::CONST) && always) w.offset += k * static_cast<int64_t>(u.const_int());
    else if (u.is(Ops::CONST)) divides(k * static_cast<int64_t>(u.const_int()));
    else if (u.is(Ops::ADD)) {
      stack.push_back({u.src(1), k, always});
      stack.push_back({u.src(0), k, always});
    } else if (u.is(Ops::MUL) && u.src(1).is_const()) stack.push_back({u.src(0), k * constant(1), always});
    else if (u.is(Ops::SHL) && u.src(1).is_const()) stack.push_back({u.src(0), k << constant(1), always});
    else if (u.is(Ops::MULACC) && u.src(1).is_const()) {
      stack.push_back({u.src(2), k, always});
      stack.push_back({u.src(0), k * constant(1), always});
    } else if (u.is(Ops::CAST) && u.src(0).dtype().is_int()) stack.push_back({u.src(0), k, always});
    else if (u.is(Ops::WHERE)) {
      stack.push_back({u.src(2), k, false});
      stack.push_back({u.src(1), k, false});
    } else if (is_vector_range(u)) continue;
    else if (u.is(Ops::RANGE) && always) {
      auto it = std::find_if(w.loops.begin(), w.loops.end(), [&](const auto& l) { return l.first == u; });
      if (it == w.loops.end()) w.loops.push_back({u, k});
      else it->second += k;
    } else {
      divides(k);
    }
  }
  return w;
}

/// A LOAD or STORE of whole registers side by side.
struct Piece {
  UOp u;
  int64_t slot;
  int loop;   ///< the innermost around it
  int bytes;  ///< of an element
  ElementAccess access;
  Walk walk;
};
}  // namespace

Streams::Streams(const LinearView& view, const Target& target) : view_(view) {
  flags_.resize(view.insts().size());
  slots_.assign(static_cast<size_t>(view.program().nbuffers), false);
  struct Loop {
    UOp range;
    int parent;
  };
  std::vector<Loop> loops;
  std::vector<int> nest{-1};
  std::vector<Piece> loads, stores, all_stores;
  std::vector<bool> read(slots_.size(), false);
  for (const LinearInst& in : view.insts()) {
    UOp u = in.u;
    if (u.is(Ops::RANGE) && !is_vector_range(u)) {
      loops.push_back({u, nest.back()});
      nest.push_back(static_cast<int>(loops.size()) - 1);
    } else if (u.is(Ops::END)) {
      for (size_t i = 1; i < u.nsrc(); i++)
        if (u.src(i).is(Ops::RANGE) && !is_vector_range(u.src(i))) nest.pop_back();
    } else if (u.in(Ops::LOAD | Ops::STORE)) {
      ElementAccess a = view.access(u.src(0));
      if (!a.base.is(Ops::PARAM)) continue;
      const int64_t slot = a.base.arg<ParamArg>().slot;
      const bool store = u.is(Ops::STORE), whole = a.lanes > 1 && a.affine && a.stride == 1;
      if (!store) read[static_cast<size_t>(slot)] = true;
      if (!whole) continue;
      const Piece piece{u, slot, nest.back(), a.base.dtype().itemsize(), a, walk_of(a.index)};
      (store ? all_stores : loads).push_back(piece);
      if (store && u.nsrc() == 2) stores.push_back(piece);
    }
  }
  auto flag_of = [&](const Piece& p) -> Flag& { return flags_[static_cast<size_t>(view.position(p.u))]; };

  for (const Piece& p : stores) {
    const int64_t lanes = p.access.lanes, bytes = lanes * p.bytes;
    if (target.arch != "x86_64" || read[static_cast<size_t>(p.slot)]) continue;
    if (p.access.size * p.bytes <= target.l3_bytes || bytes < 16 || kLine % bytes || !p.walk.at_multiples_of(lanes))
      continue;
    // Registers shorter than a line: its other parts follow at once.
    if (bytes < kLine) {
      const auto beside = std::count_if(stores.begin(), stores.end(),
                                        [&](const Piece& q) { return q.slot == p.slot && q.loop == p.loop; });
      if (p.loop < 0 || p.walk.along(loops[static_cast<size_t>(p.loop)].range) != beside * lanes) continue;
    }
    flag_of(p).bypass = true;
    slots_[static_cast<size_t>(p.slot)] = true;
  }

  // The second pass over a row fetches the next one, wherever the passes are loops side by side.
  for (const Piece& p : loads) {
    if (p.loop < 0) continue;
    const Loop& pass = loops[static_cast<size_t>(p.loop)];
    if (pass.parent < 0 || p.access.size * p.bytes <= target.l2_bytes) continue;
    UOp rows = loops[static_cast<size_t>(pass.parent)].range;
    const int64_t step = p.walk.along(pass.range), next = p.walk.along(rows),
                  row = step * static_cast<int64_t>(vmax(pass.range.src(0))) * p.bytes;
    // The last step of a row may end beyond it.
    if (step <= 0 || next <= 0 || p.walk.rest || row < 1024 || row > target.l2_bytes / 4 ||
        (next + step) * p.bytes <= row)
      continue;
    std::vector<int> before;  // passes over the same rows
    bool twice = false;
    for (const Piece& q : loads) {
      if (q.u == p.u) break;
      if (q.slot != p.slot || q.loop < 0 || loops[static_cast<size_t>(q.loop)].parent != pass.parent ||
          q.walk.along(rows) != next)
        continue;
      if (q.loop == p.loop) twice |= q.walk.offset == p.walk.offset;
      else if (std::find(before.begin(), before.end(), q.loop) == before.end()) before.push_back(q.loop);
    }
    if (before.size() != 1 || twice) continue;
    // One for each line.
    if (step * p.bytes % kLine == 0 && p.walk.offset * p.bytes % kLine >= p.access.lanes * p.bytes) continue;
    flag_of(p).ahead = next;
    for (const Piece& s : all_stores)
      if (s.loop > p.loop && loops[static_cast<size_t>(s.loop)].parent == pass.parent && !flag_of(s).bypass &&
          !read[static_cast<size_t>(s.slot)] && s.bytes == p.bytes && s.walk.along(rows) == next)
        flag_of(p).written_later = s.access.base;
  }
}

bool Streams::any_bypass() const { return std::find(slots_.begin(), slots_.end(), true) != slots_.end(); }

}  // namespace tg
