/// \file Finding transposed blocks, and the shuffles that transpose them.
#include "tinygrad/render/blocks.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_set>

#include "tinygrad/base/math.h"
#include "tinygrad/uop/affine.h"

namespace tg {
namespace {
/// An index as a sum: summands that are no literals with their coefficients, in order of their positions in the
/// program, and an offset.
struct PositionSum {
  std::vector<std::pair<int, int64_t>> terms;
  int64_t offset = 0;

  PositionSum(const ProgramView& view, UOp index) {
    for_each_summand(strip_after(index), 1, [&](UOp u, int128 k) {
      if (u.is(Ops::CONST)) offset += static_cast<int64_t>(k * u.const_int());
      else terms.emplace_back(view.position(u), static_cast<int64_t>(k));
    });
    std::sort(terms.begin(), terms.end());
    size_t n = 0;
    for (const auto& [at, k] : terms) {
      if (n && terms[n - 1].first == at) terms[n - 1].second += k;
      else terms[n++] = {at, k};
    }
    terms.resize(n);
  }
};

/// Returns a number that divides both `most`, a power of two, and every value of `u`.
int64_t factor_of(UOp u, int64_t most) {
  u = strip_after(u);
  if (u.is_const()) return std::gcd(static_cast<int64_t>(u.const_int() % most), most);
  if (u.is(Ops::CAST)) return u.src(0).dtype().is_int() ? factor_of(u.src(0), most) : 1;
  if (u.is(Ops::WHERE)) return std::gcd(factor_of(u.src(1), most), factor_of(u.src(2), most));
  if (u.is(Ops::ADD)) return std::gcd(factor_of(u.src(0), most), factor_of(u.src(1), most));
  if (u.is(Ops::MUL)) return std::min(most, factor_of(u.src(0), most) * factor_of(u.src(1), most));
  if (u.is(Ops::SHL) && u.src(1).is_const() && u.src(1).const_int() < 16)
    return std::min(most, factor_of(u.src(0), most) << static_cast<int>(u.src(1).const_int()));
  return 1;
}

/// Accesses that differ by the offsets of their indices alone. Some of them may be columns of one block.
struct Columns {
  bool store;
  MemAccess access;
  DType dtype;
  std::vector<std::pair<int, int64_t>> terms;
  UOp gate;
  bool words;
  std::vector<std::pair<int64_t, UOp>> found{};  ///< offset

  bool has_offset(int64_t offset) const {
    return std::any_of(found.begin(), found.end(), [&](const auto& f) { return f.first == offset; });
  }
};

constexpr int kWordLanes = 16;
constexpr int64_t kReach = 128;  // bytes that words come from: two registers

/// Returns the offsets of the lanes, in bytes from lane 0; empty where words can't be put together from two registers.
std::vector<int64_t> word_offsets(const MemAccess& a, DType d) {
  std::vector<int64_t> at = a.offsets;
  if (a.affine && a.stride == 4)
    for (int i = 0; i < a.lanes; i++) at.push_back(i * a.stride);
  if (a.lanes != kWordLanes || d.itemsize() != 1 || d.is_bool() || at.empty()) return {};
  const auto [low, high] = std::minmax_element(at.begin(), at.end());
  const bool even = std::all_of(at.begin(), at.end(), [&](int64_t o) { return (o - *low) % 2 == 0; });
  return even && *high - *low + 4 <= kReach ? at : std::vector<int64_t>{};
}
}  // namespace

/// Collects the columns between two ends of loops.
class BlockFinder {
 public:
  BlockFinder(LaneBlocks& blocks, int64_t near, bool words, int64_t run_bytes = 0)
      : out_(blocks), near_(near), words_(words), run_bytes_(run_bytes) {}

  void run() {
    for (const Inst& in : out_.view_.insts()) {
      const bool boundary = (in.u.is(Ops::RANGE) && !is_lane(in.u)) || in.u.in(Ops::END | Ops::BARRIER);
      if (boundary) close_all();
      else if (in.u.in(Ops::LOAD | Ops::STORE)) add(in.u);
      else if (in.u.is(Ops::CAST) && in.u.src(0).is(Ops::LOAD) && in.u.dtype().itemsize() == 2)
        of_halves_.insert(in.u.src(0));
    }
    close_all();
  }

 private:
  void add(UOp u) {
    const bool store = u.is(Ops::STORE);
    const MemAccess a = out_.view_.access(u.src(0));
    // Nothing between members may touch the same memory, unless all of them read.
    for (Columns& o : open_) {
      const bool conflicts = (store || o.store) && same_memory(o.access.base, a.base);
      const bool same = store && o.store && o.access.stride == a.stride && o.access.lanes == a.lanes;
      if (conflicts && !same) close(o);
    }
    if (run_bytes_ ? !may_run(u, a) : a.lanes < 2 || !std::has_single_bit(static_cast<unsigned>(a.lanes))) return;
    const bool as_words = words_ && !store && u.nsrc() == 1 && !word_offsets(a, u.dtype()).empty();
    if (!run_bytes_ && !as_words && !is_strided(a, store)) return;
    const UOp gate = u.nsrc() > 2 ? u.src(2) : UOp();
    if (!store && (out_.view_.lanes(u) != a.lanes || (gate && !u.src(1).is_const()))) return;
    PositionSum sum(out_.view_, a.index);
    Columns c{store, a, store ? u.src(1).dtype() : u.dtype(), std::move(sum.terms), gate, as_words};
    auto it = std::find_if(open_.begin(), open_.end(), [&](const Columns& o) { return fit(o, c); });
    if (it == open_.end()) it = open_.insert(open_.end(), std::move(c));
    if (it->has_offset(sum.offset)) {
      if (!store) return;
      close(*it);
    }
    it->found.emplace_back(sum.offset, u);
  }
  /// True for one buffer, also where a parameter is there twice.
  static bool same_memory(UOp a, UOp b) {
    return a == b || (a.is(Ops::PARAM) && b.is(Ops::PARAM) && a.arg<ParamArg>().slot == b.arg<ParamArg>().slot);
  }
  /// True for an element of a parameter.
  bool may_run(UOp u, const MemAccess& a) const {
    const UOp value = u.is(Ops::STORE) ? u.src(1) : u;
    return a.lanes == 1 && a.base.is(Ops::PARAM) && out_.view_.lanes(value) == 1 &&
           value.dtype().itemsize() == a.base.dtype().itemsize();
  }
  /// Stores that are interleaved may have fewer elements between the lanes.
  bool is_strided(const MemAccess& a, bool store) const {
    return a.affine && (std::abs(a.stride) > near_ || (store && a.stride >= 2));
  }
  bool fit(const Columns& a, const Columns& b) const {
    // Columns that are interleaved may have gates of their own.
    const bool own_gates = b.store && std::abs(b.access.stride) <= near_;
    const bool gates = own_gates ? static_cast<bool>(a.gate) == static_cast<bool>(b.gate) : a.gate == b.gate;
    return gates && a.store == b.store && a.access.base == b.access.base && a.access.stride == b.access.stride &&
           a.access.lanes == b.access.lanes && a.dtype == b.dtype && a.words == b.words &&
           a.access.offsets == b.access.offsets && a.terms == b.terms;
  }

  void close_all() {
    for (Columns& o : open_) close(o);
    open_.clear();
  }
  /// Makes blocks of the columns that are adjacent.
  void close(Columns& o) {
    std::stable_sort(o.found.begin(), o.found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const size_t begin = out_.blocks_.size();
    std::vector<int64_t> offsets;
    if (run_bytes_) close_runs(o);
    for (size_t i = 0, j; i < o.found.size(); i = j) {
      j = end_of_run(o, i);
      const bool gapless = static_cast<int64_t>(j - i) == o.access.stride;
      if (j - i < 2 || (!o.words && o.access.stride <= near_ && !gapless)) continue;
      add_block(o, i, j);
      offsets.push_back(o.found[i].first);
    }
    if (o.words) out_.group_words(begin, offsets);
    o.found.clear();
  }
  /// Makes blocks of what is side by side. Where the address is known to be a multiple of some elements, blocks begin
  /// there; else they have all elements that fit, and the address is looked at when it is known.
  void close_runs(Columns& o) {
    const int64_t item = o.dtype.itemsize();
    int64_t known = run_bytes_ / item;  // elements that the address is a multiple of, but for the offset
    for (const auto& [at, k] : o.terms)
      known = std::gcd(known, k * factor_of(out_.view_.insts()[static_cast<size_t>(at)].u, known));
    const bool aligned = known > 1 && known * item >= 8;
    const int64_t most = aligned ? known : run_bytes_ / item;
    for (size_t i = 0; i < o.found.size();) {
      size_t end = i + 1;
      while (end < o.found.size() && o.found[end].first == o.found[end - 1].first + 1) end++;
      const int64_t at = aligned ? (o.found[i].first % most + most) % most : 0;
      int64_t n = aligned && at ? at & -at : most;
      while (n > static_cast<int64_t>(end - i)) n /= 2;
      if (n > 1 && n * item >= 4) {
        add_block(o, i, i + static_cast<size_t>(n));
        out_.blocks_.back().aligned = aligned;
      }
      i += static_cast<size_t>(n);
    }
    o.found.clear();
  }
  /// Words have two or four bytes: two, where the program makes a number of sixteen bits of them.
  size_t end_of_run(const Columns& o, size_t i) const {
    size_t j = i + 1;
    while (j < o.found.size() && o.found[j].first == o.found[j - 1].first + 1) j++;
    if (!o.words) return j;
    const size_t most = of_halves_.contains(o.found[i].second) ? 2 : 4;
    if (j - i > most) j = i + most;
    return j - i == 3 ? j - 1 : j;
  }
  void add_block(const Columns& o, size_t i, size_t j) {
    LaneBlock b;
    b.words = o.words;
    b.gated = static_cast<bool>(o.gate);
    for (size_t k = i; k < j; k++) {
      b.members.push_back(o.found[k].second);
      out_.block_of_[static_cast<size_t>(out_.view_.position(o.found[k].second))] =
          static_cast<int>(out_.blocks_.size());
    }
    auto before = [&](UOp x, UOp y) { return out_.view_.position(x) < out_.view_.position(y); };
    b.first = *std::min_element(b.members.begin(), b.members.end(), before);
    b.last = *std::max_element(b.members.begin(), b.members.end(), before);
    b.first_at = std::find(b.members.begin(), b.members.end(), b.first) - b.members.begin();
    b.access = out_.view_.access(b.first.src(0));
    out_.blocks_.push_back(std::move(b));
  }

  LaneBlocks& out_;
  const int64_t near_;
  const bool words_;
  const int64_t run_bytes_;  ///< 0: blocks of lanes are looked for
  std::vector<Columns> open_;
  std::unordered_set<UOp> of_halves_;  ///< loads of bytes that become numbers of sixteen bits
};

LaneBlocks::LaneBlocks(const ProgramView& view) : block_of_(view.insts().size(), -1), view_(view) {}
void LaneBlocks::find(int64_t near, bool words) { BlockFinder(*this, near, words).run(); }
void LaneBlocks::find_runs(int64_t most) { BlockFinder(*this, 0, false, most).run(); }

/// Makes groups of the blocks from `begin`, which differ by these offsets alone.
void LaneBlocks::group_words(size_t begin, const std::vector<int64_t>& offsets) {
  if (begin == blocks_.size()) return;
  const std::vector<int64_t>& at = blocks_[begin].access.offsets;
  size_t run = 1;
  while (run < at.size() && at[run] == at[0]) run++;
  if (run < 2 || run == at.size() || at.size() % run) return;
  std::vector<int> halves;
  const int64_t low = *std::min_element(at.begin(), at.end());
  for (size_t l = 0; l < at.size(); l++) {
    if (at[l] != at[l / run * run]) return;
    if (l % run == 0) halves.push_back(static_cast<int>((at[l] - low) / 2));
  }
  WordGroup g;
  uint32_t taken = 0;
  std::vector<size_t> members;
  auto finish = [&] {
    if (members.size() > 1) {
      for (size_t i = 0; i < members.size(); i++) {
        blocks_[members[i]].group = static_cast<int>(groups_.size());
        blocks_[members[i]].number = static_cast<int>(i);
      }
      groups_.push_back(std::move(g));
    }
    g = {static_cast<int>(run), {}};
    taken = 0;
    members.clear();
  };
  finish();
  for (size_t k = begin; k < blocks_.size(); k++) {
    if (blocks_[k].members.size() != 2) continue;
    WordGroup::Part part{0, 0, {}};
    auto fits = [&] {
      part.places.clear();
      for (int h : halves) part.places.push_back(h + part.shift);
      return std::none_of(part.places.begin(), part.places.end(),
                          [&](int p) { return p >= WordGroup::kHalves || (taken >> p & 1); });
    };
    auto place = [&] {
      for (part.shift = 0; part.shift < WordGroup::kHalves; part.shift++)
        if (fits()) return true;
      return false;
    };
    if (members.size() == run || !place()) {
      finish();
      if (!place()) return;
    }
    part.offset = offsets[k - begin] - (members.empty() ? offsets[k - begin] : offsets[members[0] - begin]);
    for (int p : part.places) taken |= 1u << p;
    g.parts.push_back(std::move(part));
    members.push_back(k);
  }
  finish();
}

const LaneBlock* LaneBlocks::of(UOp u) const {
  const int b = block_of_[static_cast<size_t>(view_.position(u))];
  return b < 0 ? nullptr : &blocks_[static_cast<size_t>(b)];
}

std::vector<std::pair<int, int>> block_parts(int columns, int most) {
  std::vector<std::pair<int, int>> out;
  int at = 0;
  const auto whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(columns, most))));
  for (; columns - at >= whole; at += whole) out.emplace_back(at, whole);
  if (int rest = columns - at; rest > 0) {
    rest = std::max(2, static_cast<int>(std::bit_ceil(static_cast<unsigned>(rest))));
    out.emplace_back(columns - rest, rest);
  }
  return out;
}

namespace {
/// Returns how many of the bits that are exchanged are of the index of an element within 16 bytes.
int bits_within(int registers, int itemsize) {
  return std::min(floor_log2(registers), floor_log2(std::max(1, 16 / itemsize)));
}
}  // namespace

std::vector<ExchangeStep> exchange_steps(int registers, int lanes, int itemsize) {
  const int all = floor_log2(registers), within = bits_within(registers, itemsize);
  std::vector<ExchangeStep> steps;
  for (int j = 0; j < all; j++) {
    // A bit of the index selects the register of the result, the others move up or down, and the number of the register
    // it was in takes the free bit.
    const int chosen = j < within ? within - 1 : within, free = j < within ? j : all - 1;
    ExchangeStep s{1 << j, {}, {}};
    for (int half = 0; half < 2; half++)
      for (int p = 0; p < lanes; p++) {
        const int rest = (p >> (free + 1) << free) | (p & ((1 << free) - 1));
        const int from = (rest >> chosen << (chosen + 1)) | half << chosen | (rest & ((1 << chosen) - 1));
        (half ? s.high : s.low).push_back(from + (p >> free & 1 ? lanes : 0));
      }
    steps.push_back(std::move(s));
  }
  return steps;
}

int exchanged_register(int i, int registers, int itemsize) {
  const int all = floor_log2(registers), within = bits_within(registers, itemsize);
  int at = 0;
  for (int j = 0; j < all; j++) at |= (i >> (j < within ? within - 1 - j : j) & 1) << j;
  return at;
}

}  // namespace tg
