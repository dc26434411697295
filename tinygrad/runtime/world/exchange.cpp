/// \file Algorithms: one round where everybody sends to everybody for what is small; for sums of much, each process
/// combines its part of every segment and sends it to all.
#include "tinygrad/runtime/world/exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/world/combine.h"
#include "tinygrad/runtime/world/room.h"

namespace tg {
namespace {
/// A round of messages takes as long as so many bytes more: latency times bandwidth, which is about the same between
/// processes of a machine (1 us, 5 GB/s) and on a link of 1 Gbit/s (50 us).
constexpr size_t kRoundBytes = 8 << 10;
/// Sums of more bytes are not computed by everybody: combining would take longer than sending.
constexpr size_t kSmallBytes = 64 << 10;
/// Bytes of a segment that each process combines, and how many segments are under way at once.
constexpr size_t kOwnedBytes = 512 << 10;
constexpr size_t kWindow = 6;

/// Whether n processes sum so many bytes sooner when everybody sends all to everybody, (n - 1) N bytes in one round,
/// than in parts, 2 (n - 1) / n N bytes in two.
bool is_small(size_t n, size_t bytes) {
  return bytes <= kSmallBytes && (n <= 2 || bytes <= kRoundBytes * n / ((n - 1) * (n - 2)));
}

size_t position_of(const Collective& c, int me) {
  const auto it = std::find(c.group.begin(), c.group.end(), me);
  TG_ASSERT(it != c.group.end(), "rank ", me, " is not in the group");
  return static_cast<size_t>(it - c.group.begin());
}

/// Messages of one round, after which `last` is done.
class OneRound : public Exchange {
 public:
  explicit OneRound(Mpi& mpi) : messages_(mpi) {}
  bool advance(bool* moved) override {
    if (!messages_.all_done(moved)) return false;
    finish();
    return true;
  }
  std::vector<int> missing() const override { return messages_.missing(); }

 protected:
  virtual void finish() {}
  Messages messages_;
};

/// Sends pieces to all and receives theirs: all_gather, all_to_all, broadcast, send, receive.
class Moved final : public OneRound {
 public:
  Moved(Mpi& mpi, const Collective& c, size_t me, const std::byte* in, std::byte* out, int tag) : OneRound(mpi) {
    const size_t n = c.piece_bytes();
    const auto keep = [&](size_t from, size_t to) {
      if (n && in + from * n != out + to * n) std::memmove(out + to * n, in + from * n, n);
    };
    if (c.what == CollectiveKind::kSend) {
      messages_.send(in, n, c.root, tag);
      keep(0, 0);
    } else if (c.what == CollectiveKind::kReceive) {
      messages_.receive(out, n, c.root, tag);
    } else if (c.what == CollectiveKind::kBroadcast) {
      const auto root = static_cast<size_t>(c.root);
      if (me == root) {
        for (size_t p = 0; p < c.group.size(); p++)
          if (p != me) messages_.send(in, n, c.group[p], tag);
        keep(0, 0);
      } else messages_.receive(out, n, c.group[root], tag);
    } else {
      const bool each = c.what == CollectiveKind::kAllToAll;
      for (size_t k = 1; k < c.group.size(); k++) {
        const size_t p = (me + k) % c.group.size();
        messages_.receive(out + p * n, n, c.group[p], tag);
      }
      for (size_t k = 1; k < c.group.size(); k++) {
        const size_t p = (me + c.group.size() - k) % c.group.size();
        messages_.send(in + (each ? p : 0) * n, n, c.group[p], tag);
      }
      keep(each ? me : 0, me);
    }
  }
};

/// Combines, of elements [begin, end), the values of all processes: every piece at `in` of each, or everybody's `in`.
class Combined {
 public:
  /// Posts receives of the values that process `me` combines; `at(p)`: where the process p keeps what p combines.
  Combined(const Collective& c, size_t me) : c_(c), me_(me) {}
  void receive(Messages& messages, size_t bytes, int tag) {
    received_.emplace(bytes * (c_.group.size() - 1));
    for (size_t k = 1, at = 0; k < c_.group.size(); k++, at += bytes)
      messages.receive(received_->data() + at, bytes, c_.group[(me_ + k) % c_.group.size()], tag);
  }
  /// Combines `own` with what was received.
  void combine_into(std::byte* out, const std::byte* own, size_t bytes) {
    std::vector<const std::byte*> parts(c_.group.size(), own);
    for (size_t k = 1, at = 0; k < c_.group.size(); k++, at += bytes)
      parts[(me_ + k) % c_.group.size()] = received_->data() + at;
    combine(c_.op, c_.dtype, parts, out, bytes / static_cast<size_t>(c_.dtype.itemsize()));
    received_.reset();
  }

 private:
  const Collective& c_;
  size_t me_;
  std::optional<Room> received_;
};

/// A small sum: everybody sends all to everybody.
class SmallAllReduce final : public OneRound {
 public:
  SmallAllReduce(Mpi& mpi, const Collective& c, size_t me, const std::byte* in, std::byte* out, int tag)
      : OneRound(mpi), c_(c), combined_(c_, me), in_(in), out_(out) {
    combined_.receive(messages_, c_.piece_bytes(), tag);
    for (int p : c_.group)
      if (p != c_.group[me]) messages_.send(in, c_.piece_bytes(), p, tag);
  }

 private:
  void finish() override { combined_.combine_into(out_, in_, c_.piece_bytes()); }
  Collective c_;
  Combined combined_;
  const std::byte* in_;
  std::byte* out_;
};

/// A segment of a large sum, or of a reduce_scatter: process p combines chunk p of it.
class Segment {
 public:
  Segment(Mpi& mpi, const Collective& c, size_t me, int tag)
      : c_(c), messages_(mpi), combined_(c, me), me_(me), tag_(tag) {}
  /// Begins: chunks[p] are the bytes that process p combines; `results[p]`: where they go, null for nowhere.
  void begin(std::vector<std::span<const std::byte>> chunks, std::vector<std::byte*> results) {
    chunks_ = std::move(chunks);
    results_ = std::move(results);
    combined_.receive(messages_, chunks_[me_].size(), tag_);
    for (size_t k = 1; k < chunks_.size(); k++) {
      const size_t p = (me_ + chunks_.size() - k) % chunks_.size();
      messages_.send(chunks_[p].data(), chunks_[p].size(), c_.group[p], tag_);
    }
  }
  bool advance(bool* moved) {
    if (!messages_.all_done(moved)) return false;
    if (spread_) return true;
    spread_ = true;
    *moved = true;
    std::byte* const mine = results_[me_];
    combined_.combine_into(mine, chunks_[me_].data(), chunks_[me_].size());
    for (size_t k = 1; k < chunks_.size(); k++) {
      const size_t from = (me_ + k) % chunks_.size(), to = (me_ + chunks_.size() - k) % chunks_.size();
      if (results_[from]) messages_.receive(results_[from], chunks_[from].size(), c_.group[from], tag_ + 1);
      if (results_[from]) messages_.send(mine, chunks_[me_].size(), c_.group[to], tag_ + 1);
    }
    return messages_.all_done(moved);
  }
  std::vector<int> missing() const { return messages_.missing(); }

 private:
  const Collective& c_;
  Messages messages_;
  Combined combined_;
  size_t me_;
  int tag_;
  bool spread_ = false;
  std::vector<std::span<const std::byte>> chunks_;
  std::vector<std::byte*> results_;
};

/// Sums of any size, segment by segment, several at once: while some are sent others are combined.
class Segmented final : public Exchange {
 public:
  Segmented(Mpi& mpi, const Collective& c, size_t me, const std::byte* in, std::byte* out, int tag)
      : mpi_(mpi), c_(c), me_(me), in_(in), out_(out), tag_(tag) {
    const auto size = static_cast<size_t>(c_.dtype.itemsize());
    owned_ = kOwnedBytes / size;
    start_more();
  }
  bool advance(bool* moved) override {
    std::erase_if(active_, [&](const std::unique_ptr<Segment>& s) { return s->advance(moved); });
    start_more();
    return active_.empty();
  }
  std::vector<int> missing() const override {
    return active_.empty() ? std::vector<int>() : active_.front()->missing();
  }

 private:
  static_assert(2 * (kWindow + 1) <= kTags);
  void start_more() {
    while (active_.size() < kWindow && next_ < elements_of_all()) {
      const int tag = tag_ + 2 * (number_++ % (kTags / 2));
      active_.push_back(std::make_unique<Segment>(mpi_, c_, me_, tag));
      c_.what == CollectiveKind::kReduceScatter ? begin_piece(*active_.back()) : begin_whole(*active_.back());
    }
  }
  size_t elements_of_all() const { return static_cast<size_t>(c_.elements); }
  /// Of an allreduce: the next elements, divided among all.
  void begin_whole(Segment& s) {
    const auto size = static_cast<size_t>(c_.dtype.itemsize());
    const size_t n = c_.group.size(), end = std::min(elements_of_all(), next_ + owned_ * n),
                 each = (end - next_ + n - 1) / n;
    std::vector<std::span<const std::byte>> chunks;
    std::vector<std::byte*> results;
    for (size_t p = 0; p < n; p++) {
      const size_t from = std::min(end, next_ + p * each), to = std::min(end, from + each);
      chunks.emplace_back(in_ + from * size, (to - from) * size);
      results.push_back(out_ + from * size);
    }
    next_ = end;
    s.begin(std::move(chunks), std::move(results));
  }
  /// Of a reduce_scatter: the next elements of every piece.
  void begin_piece(Segment& s) {
    const auto size = static_cast<size_t>(c_.dtype.itemsize());
    const size_t end = std::min(elements_of_all(), next_ + owned_);
    std::vector<std::span<const std::byte>> chunks;
    std::vector<std::byte*> results(c_.group.size(), nullptr);
    for (size_t p = 0; p < c_.group.size(); p++)
      chunks.emplace_back(in_ + (p * elements_of_all() + next_) * size, (end - next_) * size);
    results[me_] = out_ + next_ * size;
    next_ = end;
    s.begin(std::move(chunks), std::move(results));
  }

  Mpi& mpi_;
  Collective c_;
  size_t me_;
  const std::byte* in_;
  std::byte* out_;
  int tag_, number_ = 0;
  size_t owned_ = 0, next_ = 0;
  std::deque<std::unique_ptr<Segment>> active_;
};
}  // namespace

std::unique_ptr<Exchange> start_exchange(Mpi& mpi, const Collective& c, int me, const std::byte* in, std::byte* out,
                                         int tag) {
  const size_t at = position_of(c, me);
  const bool combines = c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
  if (!combines) return std::make_unique<Moved>(mpi, c, at, in, out, tag);
  if (c.what == CollectiveKind::kAllReduce && is_small(c.group.size(), c.piece_bytes()))
    return std::make_unique<SmallAllReduce>(mpi, c, at, in, out, tag);
  return std::make_unique<Segmented>(mpi, c, at, in, out, tag);
}

int64_t Collective::sent_bytes() const {
  const auto n = static_cast<int64_t>(group.size()), bytes = static_cast<int64_t>(piece_bytes());
  switch (what) {
    case CollectiveKind::kAllReduce:
      return is_small(group.size(), piece_bytes()) ? (n - 1) * bytes : 2 * (n - 1) * bytes / n;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll: return (n - 1) * bytes;
    case CollectiveKind::kBroadcast: return bytes;
    case CollectiveKind::kSend: return bytes;
    case CollectiveKind::kReceive: return 0;
  }
  return 0;
}

std::string text_of(const Collective& c) {
  const bool combines = c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
  std::string out = str(name_of(c.what), combines ? str(" ", c.op) : "", " of ", c.elements, " ", c.dtype);
  if (c.what == CollectiveKind::kSend) return out + str(" to rank ", c.root);
  if (c.what == CollectiveKind::kReceive) return out + str(" from rank ", c.root);
  return out + str(" by ", c.group.size(), " ranks");
}

uint64_t fingerprint_of(const Collective& c) {
  const bool pair = c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive;
  const bool combines = c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
  Hash128 h;
  h.add(static_cast<uint64_t>(pair ? CollectiveKind::kSend : c.what));
  if (combines) h.add(static_cast<uint64_t>(c.op));
  h.add(c.dtype.name());
  h.add(static_cast<uint64_t>(c.elements));
  if (c.what == CollectiveKind::kBroadcast) h.add(static_cast<uint64_t>(c.root));
  return h.lo;
}

}  // namespace tg
