/// \file The interpreter's groups: which warp runs when, clusters, barriers in memory and copies in boxes.
#include <algorithm>
#include <cstring>

#include "tinygrad/runtime/interp.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/barriers.h"

namespace tg {
namespace {
constexpr size_t kAlign = 16;
constexpr int64_t kMostThreads = 1 << 16;
constexpr size_t kArriving = 32;  // threads of a warp of the hardware

int64_t number_at(const unsigned char* p, DType d) { return static_cast<int64_t>(load_const(p, d).i); }
}  // namespace

/// Notes that a warp copies something to the group's memory, which no product may still be reading.
void Interpreter::note_store(const Step& s, const Warp& w, size_t at, size_t bytes) const {
  UnderWay::Groups& copies = (*w.begun)[w.number].copies;
  for (size_t part = at / kMatrixPart; part * kMatrixPart < at + bytes; part++) {
    for (const UnderWay& other : *w.begun)
      TG_ASSERT(other.products.is_over(part), program_->name, ": byte ", at,
                " of the group's memory is stored while a ", "product may read it: ", s.u);
    copies.of_part[part] = copies.ended + 1;
  }
}
/// Notes that a product of a warp reads what is there, which all must have waited for.
void Interpreter::note_read(const Step& s, const Warp& w, size_t at) const {
  UnderWay::Groups& products = (*w.begun)[w.number].products;
  const size_t part = at / kMatrixPart;
  for (const UnderWay& other : *w.begun)
    TG_ASSERT(other.copies.is_over(part), program_->name, ": byte ", at, " of the group's memory is read while copies ",
              "to it may be under way: ", s.u);
  if (Group& g = w.own(); !g.barriers.empty()) {
    const auto [barrier, phase] = g.boxes[part];
    TG_ASSERT(phase < 0 || g.barriers.at(barrier).seen[w.number] > phase, program_->name, ": byte ", at,
              " of the group's memory is read while a box may be copied there: ", s.u);
  }
  products.of_part[part] = products.ended + 1;
}
void Interpreter::wait_for_copies(const Step& s, const Warp& w) const {
  if (!w.begun) return;
  UnderWay::Groups& copies = (*w.begun)[w.number].copies;
  if (s.base < 0) copies.end();
  copies.wait(std::max<int64_t>(0, s.base));
}

/// Returns the place of the barrier in the memory of the group, which all threads know.
size_t Interpreter::barrier_place(const Step& s, const Warp& w) const {
  return static_cast<size_t>(s.base + checked_index(s, w.frame + s.in[0] * w.n, 0) * static_cast<int64_t>(s.stride));
}
Interpreter::MemoryBarrier& Interpreter::barrier_at(const Step& s, Group& g, size_t at) const {
  const auto it = g.barriers.find(at);
  TG_ASSERT(it != g.barriers.end(), program_->name, ": a barrier in memory that was not begun: ", s.u);
  return it->second;
}

void Interpreter::begin_barriers(const Step& s, const Warp& w) const {
  if (w.number) return;
  const size_t at = barrier_place(s, w);
  for (size_t i = 0; i < static_cast<size_t>(barrier_number(s.u)); i++) {
    MemoryBarrier& b = w.own().barriers[at + i * s.stride];
    b.arrivals = barrier_number(s.u, 3);
    b.seen.assign(w.own().warps.size(), 0);
  }
}

namespace {
/// Begins the next phase where this one is over.
template <class Barrier> void turn(Barrier& b) {
  if (b.arrived < b.arrivals || b.bytes != 0) return;
  b.arrived = 0;
  b.phases++;
}
}  // namespace

/// The first thread of the group does it.
void Interpreter::expect_boxes(const Step& s, const Warp& w) const {
  if (w.number || (s.gated && !w.frame[s.in[2] * w.n])) return;
  MemoryBarrier& b = barrier_at(s, w.own(), barrier_place(s, w));
  TG_ASSERT(b.arrived < b.arrivals, program_->name, ": boxes are expected in a phase that expects some: ", s.u);
  b.arrived++;
  b.bytes += barrier_number(s.u);
  turn(b);
}

/// Each 32 threads arrive once.
void Interpreter::release_room(const Step& s, const Warp& w) const {
  if (s.gated && !w.frame[s.in[2] * w.n]) return;
  for (Group& g : *w.cluster) {
    MemoryBarrier& b = barrier_at(s, g, barrier_place(s, w));
    b.arrived += static_cast<int64_t>(w.n + kArriving - 1) / kArriving;
    TG_ASSERT(b.arrived <= b.arrivals, program_->name, ": ", b.arrived, " arrivals at a barrier of ", b.arrivals, ": ",
              s.u);
    turn(b);
  }
}

/// Returns whether the phase is over. For room the first thread waits alone.
bool Interpreter::await_phase(const Step& s, const Warp& w) const {
  if (s.kind == Kind::kAwaitRoom && (w.number || (s.gated && !w.frame[s.in[2] * w.n]))) return true;
  MemoryBarrier& b = barrier_at(s, w.own(), barrier_place(s, w));
  const int64_t parity = number_at(w.frame + s.in[1] * w.n, s.u.src(1).dtype());
  TG_ASSERT(parity == 0 || parity == 1, program_->name, ": a phase of parity ", parity, ": ", s.u);
  if (b.phases % 2 == parity) return false;
  b.seen[w.number] = b.phases;
  return true;
}

/// Notes that a box comes to 16 bytes of a group's memory: all of its warps have waited for what was copied there
/// before, and no product reads it any more.
void Interpreter::note_box(const Step& s, Group& g, size_t part, size_t barrier) const {
  auto& [known, phase] = g.boxes[part];
  for (const Warp& w : g.warps) {
    TG_ASSERT(phase < 0 || g.barriers.at(known).seen[w.number] > phase, program_->name, ": a box is copied to byte ",
              part * kMatrixPart, " of the group's memory while threads wait for the one before it: ", s.u);
    TG_ASSERT(g.begun[w.number].products.is_over(part), program_->name, ": a box is copied to byte ",
              part * kMatrixPart, " of the group's memory while a product may read it: ", s.u);
  }
  known = barrier;
  phase = g.barriers.at(barrier).phases;
}

/// Copies at once: what was copied is seen by those alone that have waited for its barrier, which note_read() checks.
void Interpreter::copy_box(const Step& s, const Warp& w, void* const* buffers) const {
  if (w.number || (s.gated && !w.frame[s.in[2] * w.n])) return;
  const Box& b = boxes_[static_cast<size_t>(s.base)];
  const TensorMap& m = b.map;
  auto number = [&](size_t place, DType d) { return number_at(w.frame + place * w.n, d); };
  const int64_t column = number(b.column, b.column_type), row = number(b.row, b.row_type);
  const size_t to = barrier_place(b.to, w), item = static_cast<size_t>(m.itemsize),
               barrier = b.barriers + sizeof(uint64_t) * static_cast<size_t>(number(b.number, b.number_type));
  TG_ASSERT(to % kMatrixAlignment == 0 && to + static_cast<size_t>(m.box_bytes()) <= shared_bytes_, program_->name,
            ": a box at byte ", to, " of the group's memory, which has ", shared_bytes_, ": ", s.u);
  TG_ASSERT(is_possible(m) && m.slot < program_->nbuffers, program_->name, ": no box that can be copied: ", s.u);
  const auto* from = static_cast<const unsigned char*>(buffers[m.slot]);
  for (size_t i = 0; i < w.cluster->size(); i++) {
    if (b.groups == 1 && i != w.group) continue;
    Group& g = (*w.cluster)[i];
    MemoryBarrier& told = barrier_at(s, g, barrier);
    for (size_t part = to / kMatrixPart; part * kMatrixPart < to + static_cast<size_t>(m.box_bytes()); part++)
      note_box(s, g, part, barrier);
    for (int64_t y = 0; y < m.box_height; y++)
      for (int64_t x = 0; x < m.box_width; x++) {
        const size_t byte = to + static_cast<size_t>(y * kMatrixRow) + static_cast<size_t>(x) * item,
                     at = byte ^ byte / kMatrixRow % kMatrixRows * kMatrixPart;
        const bool inside = column + x >= 0 && column + x < m.width && row + y >= 0 && row + y < m.height;
        if (inside)
          std::memcpy(g.shared + at, from + static_cast<size_t>((row + y) * m.width + column + x) * item, item);
        else std::memset(g.shared + at, 0, item);
      }
    told.bytes -= m.box_bytes();
    turn(told);
  }
}

/// Runs a group as far as it can go without the others of its cluster; false: it could not go on at all.
bool Interpreter::run_group(Group& g, void* const* buffers, const int64_t* vars) const {
  for (bool any = false;; any = true) {
    bool moved = false;
    for (Warp& w : g.warps) {
      if (w.stop != Stop::kNone && w.stop != Stop::kAwait) continue;
      const size_t before = w.pc;
      w.stop = run_to_barrier(w, buffers, vars);
      moved |= w.pc != before || w.stop != Stop::kAwait;
    }
    if (!moved) return any;
    const bool together = std::all_of(g.warps.begin(), g.warps.end(),
                                      [](const Warp& w) { return w.stop == Stop::kBarrier || w.stop == Stop::kEnd; });
    if (!together || g.warps[0].stop == Stop::kEnd) continue;
    for (Warp& w : g.warps) {
      TG_ASSERT(w.stop == Stop::kBarrier && w.pc == g.warps[0].pc, program_->name,
                ": warps of a group wait at different barriers");
      w.stop = Stop::kNone;
    }
  }
}

/// Runs all groups of a cluster, `first` first.
void Interpreter::run_cluster(std::vector<Group>& cluster, size_t first, void* const* buffers,
                              const int64_t* vars) const {
  auto all_stop = [&](Stop stop) {
    return std::all_of(cluster.begin(), cluster.end(), [&](const Group& g) {
      return std::all_of(g.warps.begin(), g.warps.end(), [&](const Warp& w) { return w.stop == stop; });
    });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < cluster.size(); i++)
      moved |= run_group(cluster[(first + i) % cluster.size()], buffers, vars);
    if (all_stop(Stop::kEnd)) return;
    if (!all_stop(Stop::kCluster)) continue;
    for (Group& g : cluster)
      for (Warp& w : g.warps) {
        TG_ASSERT(w.pc == cluster[0].warps[0].pc, program_->name, ": warps of a cluster wait at different barriers");
        w.stop = Stop::kNone;
      }
    moved = true;
  }
  throw InternalError(str("[interp] ", program_->name, ": threads wait for each other for ever"));
}

/// Gives the warps of groups from `first` on their memory and their positions in the grid.
void Interpreter::place_warps(std::vector<Group>& cluster, const LaunchSize& size, int64_t first, size_t threads,
                              unsigned char* memory) const {
  const int64_t *g = size.global, *l = size.local, each = l[0] * l[1] * l[2];
  const bool noted =
      std::any_of(products_.begin(), products_.end(), [](const Product& p) { return p.core->reads_memory(); });
  unsigned char* shared = memory + frame_bytes_ * threads * cluster.size();
  for (size_t c = 0; c < cluster.size(); c++) {
    Group& group = cluster[c];
    group = Group{.shared = shared + c * shared_bytes_};
    for (size_t at = 0; at < threads; at += kWarp) {
      Warp& w = group.warps.emplace_back(
          Warp{memory + (c * threads + at) * frame_bytes_, group.shared, std::min(kWarp, threads - at), 0, 1});
      w.first = at;
      w.number = at / kWarp;
      w.cluster = &cluster;
      w.group = c;
      for (size_t t = at; t < at + w.n; t++) {
        const int64_t i = static_cast<int64_t>(t) % each,
                      k = first + static_cast<int64_t>(c) + static_cast<int64_t>(t) / each;
        for (int64_t p : {k % g[0], k / g[0] % g[1], k / g[0] / g[1], i % l[0], i / l[0] % l[1], i / l[0] / l[1]})
          w.position.push_back(p);
      }
      start(w);
    }
    if (!noted) continue;
    const size_t parts = shared_bytes_ / kMatrixPart + 1;
    group.boxes.assign(boxes_.empty() ? 0 : parts, {0, -1});
    group.begun.resize(group.warps.size());
    for (UnderWay& u : group.begun)
      for (UnderWay::Groups* begun : {&u.copies, &u.products}) begun->of_part.assign(parts, 0);
    for (Warp& w : group.warps) w.begun = &group.begun;
  }
}

void Interpreter::run_groups(void* const* buffers, const int64_t* vars, const LaunchSize& size, int64_t begin,
                             int64_t end) const {
  for (const int64_t n : size.local)
    TG_ASSERT(n >= 1 && n <= kMostThreads, program_->name, ": groups of ", n, " threads along a dimension");
  const int64_t threads = size.local[0] * size.local[1] * size.local[2];
  TG_ASSERT(threads <= kMostThreads, program_->name, ": groups of ", threads, " threads");
  const int64_t together = static_cast<int64_t>(cluster_);
  TG_ASSERT(size.global[0] % together == 0 && begin % together == 0 && end % together == 0, program_->name,
            ": clusters of ", together, " groups in a grid with ", size.global[0], " groups along dimension 0");
  // Groups without common memory are one for us, so that small ones fill warps.
  const int64_t joined = shared_bytes_ ? 1 : std::max<int64_t>(1, static_cast<int64_t>(kWarp) / threads),
                step = std::max(together, joined);
  const auto most = static_cast<size_t>(std::min(joined, end - begin) * threads) * cluster_;
  const std::unique_ptr<unsigned char[]> memory(
      new unsigned char[frame_bytes_ * most + shared_bytes_ * cluster_ + kAlign]);
  std::vector<Group> cluster(cluster_);
  for (int64_t first = begin; first < end; first += step) {
    place_warps(cluster, size, first, static_cast<size_t>(std::min(joined, end - first) * threads), memory.get());
    run_cluster(cluster, static_cast<size_t>(first / together) % cluster_, buffers, vars);
  }
}

}  // namespace tg
