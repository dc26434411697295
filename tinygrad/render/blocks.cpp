/// \file Finding transposed blocks, and the shuffles that transpose them.
#include "tinygrad/render/blocks.h"

#include <algorithm>
#include <bit>

namespace tg {
namespace {
/// An index as a sum: summands that are no constant with their coefficients, in order of their places in the program,
/// and a constant.
struct Sum {
  std::vector<std::pair<int, int64_t>> terms;
  int64_t offset = 0;
};
Sum sum_of(const LinearView& view, UOp index) {
  Sum out;
  std::vector<std::pair<UOp, int64_t>> stack{{index, 1}};
  while (!stack.empty()) {
    auto [u, k] = stack.back();
    stack.pop_back();
    u = strip_after(u);
    auto constant = [](UOp v) { return static_cast<int64_t>(v.const_int()); };
    if (u.is(Ops::CONST)) {
      out.offset += k * constant(u);
    } else if (u.is(Ops::ADD)) {
      stack.push_back({u.src(0), k});
      stack.push_back({u.src(1), k});
    } else if (u.is(Ops::MUL) && u.src(1).is_const()) {
      stack.push_back({u.src(0), k * constant(u.src(1))});
    } else if (u.is(Ops::SHL) && u.src(1).is_const()) {
      stack.push_back({u.src(0), k << constant(u.src(1))});
    } else if (u.is(Ops::MULACC) && u.src(1).is_const()) {
      stack.push_back({u.src(2), k});
      stack.push_back({u.src(0), k * constant(u.src(1))});
    } else {
      out.terms.emplace_back(view.position(u), k);
    }
  }
  std::sort(out.terms.begin(), out.terms.end());
  size_t n = 0;
  for (const auto& [at, k] : out.terms) {
    if (n && out.terms[n - 1].first == at) out.terms[n - 1].second += k;
    else out.terms[n++] = {at, k};
  }
  out.terms.resize(n);
  return out;
}

/// Accesses of which some may be columns of one block.
struct Open {
  bool store;
  ElementAccess access;
  DType dtype;
  std::vector<std::pair<int, int64_t>> terms;
  UOp gate;
  std::vector<std::pair<int64_t, UOp>> found;  // offset
  bool words = false;
};

constexpr int kWordLanes = 16;
constexpr int64_t kReach = 128;  // bytes that words come from: two registers

/// Places of the lanes, in bytes from lane 0; empty where words can't be put together from two registers.
std::vector<int64_t> word_places(const ElementAccess& a, DType d) {
  std::vector<int64_t> at = a.offsets;
  if (a.affine && a.stride == 4)
    for (int i = 0; i < a.lanes; i++) at.push_back(i * a.stride);
  if (a.lanes != kWordLanes || d.itemsize() != 1 || d.is_bool() || at.empty()) return {};
  const auto [low, high] = std::minmax_element(at.begin(), at.end());
  const bool even = std::all_of(at.begin(), at.end(), [&](int64_t o) { return (o - *low) % 2 == 0; });
  return even && *high - *low + 4 <= kReach ? at : std::vector<int64_t>{};
}
}  // namespace

LaneBlocks::LaneBlocks(const LinearView& view, int64_t near, bool words) : view_(view) {
  block_of_.assign(view.insts().size(), -1);
  std::vector<Open> open;
  auto close = [&](Open& o) {
    std::vector<std::pair<int64_t, UOp>> sorted = o.found;
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const size_t begin = blocks_.size();
    std::vector<int64_t> offsets;
    for (size_t i = 0, j; i < sorted.size(); i = j) {
      for (j = i + 1; j < sorted.size() && sorted[j].first == sorted[j - 1].first + 1;) j++;
      if (o.words && j - i > 4) j = i + 4;
      if (o.words && j - i == 3) j--;
      if (j - i < 2 || (!o.words && o.access.stride <= near && static_cast<int64_t>(j - i) != o.access.stride))
        continue;
      LaneBlock b;
      b.words = o.words;
      for (size_t k = i; k < j; k++) {
        b.members.push_back(sorted[k].second);
        block_of_[static_cast<size_t>(view.position(sorted[k].second))] = static_cast<int>(blocks_.size());
      }
      auto before = [&](UOp x, UOp y) { return view.position(x) < view.position(y); };
      b.first = *std::min_element(b.members.begin(), b.members.end(), before);
      b.last = *std::max_element(b.members.begin(), b.members.end(), before);
      b.first_at = std::find(b.members.begin(), b.members.end(), b.first) - b.members.begin();
      b.access = view.access(b.first.src(0));
      b.gated = static_cast<bool>(o.gate);
      blocks_.push_back(std::move(b));
      offsets.push_back(sorted[i].first);
    }
    if (o.words) group_words(begin, offsets);
    o.found.clear();
  };
  for (const LinearInst& in : view.insts()) {
    UOp u = in.u;
    if ((u.is(Ops::RANGE) && !is_vector_range(u)) || u.in(Ops::END | Ops::BARRIER)) {
      for (Open& o : open) close(o);
      open.clear();
      continue;
    }
    if (!u.in(Ops::LOAD | Ops::STORE)) continue;
    const bool store = u.is(Ops::STORE);
    const ElementAccess a = view.access(u.src(0));
    // What is between them must not touch the same memory, unless all read.
    for (Open& o : open)
      if ((store || o.store) && o.access.base == a.base) {
        const bool same = store && o.store && o.access.stride == a.stride && o.access.lanes == a.lanes;
        if (!same) close(o);
      }
    if (a.lanes < 2 || !std::has_single_bit(static_cast<unsigned>(a.lanes))) continue;
    const bool as_words = words && !store && u.nsrc() == 1 && !word_places(a, u.dtype()).empty();
    if (!as_words && (!a.affine || (std::abs(a.stride) <= near && (!store || a.stride < 2)))) continue;
    if (!store && view.lanes(u) != a.lanes) continue;
    const UOp gate = u.nsrc() > 2 ? u.src(2) : UOp();
    if (!store && gate && !u.src(1).is_const()) continue;
    const DType d = store ? u.src(1).dtype() : u.dtype();
    Sum s = sum_of(view, a.index);
    auto it = std::find_if(open.begin(), open.end(), [&](const Open& o) {
      return o.store == store && o.access.base == a.base && o.access.stride == a.stride && o.access.lanes == a.lanes &&
             o.dtype == d &&
             // Columns that are interleaved may have gates of their own.
             (store && std::abs(a.stride) <= near ? static_cast<bool>(o.gate) == static_cast<bool>(gate)
                                                  : o.gate == gate) &&
             o.words == as_words && o.access.offsets == a.offsets && o.terms == s.terms;
    });
    if (it == open.end()) it = open.insert(open.end(), {store, a, d, std::move(s.terms), gate, {}, as_words});
    if (std::none_of(it->found.begin(), it->found.end(), [&](const auto& f) { return f.first == s.offset; }))
      it->found.emplace_back(s.offset, u);
    else if (store) {
      close(*it);
      it->found.emplace_back(s.offset, u);
    }
  }
  for (Open& o : open) close(o);
}

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
int log2_of(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
/// Bits of the place of an element within 16 bytes, of those that are exchanged.
int bits_within(int registers, int itemsize) {
  return std::min(log2_of(registers), log2_of(std::max(1, 16 / itemsize)));
}
}  // namespace

std::vector<ExchangeStep> exchange_steps(int registers, int lanes, int itemsize) {
  const int all = log2_of(registers), within = bits_within(registers, itemsize);
  std::vector<ExchangeStep> steps;
  for (int j = 0; j < all; j++) {
    // A bit of the place chooses the register of the result, the others move up or down, and the register it was in
    // takes the free place.
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
  const int all = log2_of(registers), within = bits_within(registers, itemsize);
  int at = 0;
  for (int j = 0; j < all; j++) at |= (i >> (j < within ? within - 1 - j : j) & 1) << j;
  return at;
}

}  // namespace tg
