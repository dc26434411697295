/// \file Sums of processes that are alike.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "tinygrad/runtime/world/combine.h"
#include "tinygrad/runtime/world/exchange_kinds.h"
#include "tinygrad/runtime/world/segment.h"

namespace tg {
namespace {
/// Bytes of a segment that each process combines, and how many segments are under way at once.
constexpr size_t kOwnedBytes = 512 << 10;
constexpr size_t kWindow = 6;

/// Everybody sends all to everybody.
class DirectAllReduce final : public OneRound {
 public:
  explicit DirectAllReduce(const ExchangeArgs& a)
      : OneRound(a.mpi), c_(a.c), combined_(c_, position_of(c_.group, a.me)), in_(a.in), out_(a.out) {
    combined_.receive(messages_, c_.piece_bytes(), a.tag);
    for (const int p : c_.group)
      if (p != a.me) messages_.send(in_, c_.piece_bytes(), p, a.tag);
  }

 private:
  void finish() override { combined_.combine_into(out_, in_, c_.piece_bytes()); }
  const Collective c_;
  Combined combined_;
  const std::byte* in_;
  std::byte* out_;
};

/// Recursive doubling: after round k the processes whose positions differ in their lowest k bits alone have one sum.
/// Those beyond the last power of two give their values to another process first, and get the result last. Two values
/// are added in the order of their positions, so all have the same bits.
class DoublingAllReduce final : public Exchange {
 public:
  explicit DoublingAllReduce(const ExchangeArgs& a)
      : messages_(a.mpi),
        c_(a.c),
        out_(a.out),
        tag_(a.tag),
        me_(position_of(c_.group, a.me)),
        square_(std::bit_floor(c_.group.size())),
        received_(c_.piece_bytes()) {
    if (a.in != out_) std::memcpy(out_, a.in, c_.piece_bytes());
    if (me_ >= square_) {
      give(me_ - square_, tag_);
      messages_.receive(out_, c_.piece_bytes(), c_.group[me_ - square_], tag_ + 1);
      bit_ = square_;
    } else if (me_ + square_ < c_.group.size()) take(me_ + square_, tag_);
    else next_round();
  }
  bool advance(bool* moved) override {
    while (messages_.all_done(moved)) {
      if (last_) return true;
      if (from_) add();
      next_round();
    }
    return false;
  }
  std::vector<int> missing() const override { return messages_.missing(); }

 private:
  void give(size_t to, int tag) { messages_.send(out_, c_.piece_bytes(), c_.group[to], tag); }
  void take(size_t from, int tag) {
    from_ = from;
    messages_.receive(received_.data(), c_.piece_bytes(), c_.group[from], tag);
  }
  void add() {
    const std::byte* parts[] = {out_, received_.data()};
    if (*from_ < me_) std::swap(parts[0], parts[1]);
    combine(c_.op, c_.dtype, parts, out_, static_cast<size_t>(c_.elements));
    from_.reset();
  }
  void next_round() {
    if (me_ < square_ && bit_ < square_) {
      const int tag = tag_ + 2 + std::countr_zero(bit_);
      take(me_ ^ bit_, tag);
      give(me_ ^ bit_, tag);
      bit_ *= 2;
      return;
    }
    last_ = true;
    if (me_ < square_ && me_ + square_ < c_.group.size()) give(me_ + square_, tag_ + 1);
  }
  Messages messages_;
  const Collective c_;
  std::byte* out_;
  int tag_;
  size_t me_, square_, bit_ = 1;
  std::optional<size_t> from_;  ///< whose value is received
  bool last_ = false;
  Room received_;
};

static_assert(2 * (kWindow + 1) <= Exchange::kTags);

/// Sums of any size, each segment of them divided among all; of a reduce_scatter the same elements of every piece.
class Segmented final : public InSegments {
 public:
  explicit Segmented(const ExchangeArgs& a)
      : InSegments(a, kOwnedBytes / static_cast<size_t>(a.c.dtype.itemsize()) * (scatters(a.c) ? 1 : a.c.group.size()),
                   kWindow),
        mpi_(a.mpi),
        me_(position_of(a.c.group, a.me)) {}

 private:
  static bool scatters(const Collective& c) { return c.what == CollectiveKind::kReduceScatter; }
  std::unique_ptr<Exchange> begin(size_t from, size_t to, int tag) override {
    const size_t n = c_.group.size(), bytes = (to - from) * size();
    if (!scatters(c_))
      return std::make_unique<Segment>(mpi_, c_, me_, tag,
                                       chunks_of(in_ + from * size(), out_ + from * size(), bytes, n, size()));
    Chunks chunks{{}, std::vector<std::byte*>(n, nullptr)};
    for (size_t p = 0; p < n; p++) chunks.from.emplace_back(in_ + (p * elements() + from) * size(), bytes);
    chunks.to[me_] = out_ + from * size();
    return std::make_unique<Segment>(mpi_, c_, me_, tag, std::move(chunks));
  }
  Mpi& mpi_;
  size_t me_;
};
}  // namespace

std::unique_ptr<Exchange> start_sum(const ExchangeArgs& a, Algorithm way) {
  if (way == Algorithm::kDirect) return std::make_unique<DirectAllReduce>(a);
  if (way == Algorithm::kDoubling) return std::make_unique<DoublingAllReduce>(a);
  return std::make_unique<Segmented>(a);
}

}  // namespace tg
