/// \file Exchanges on several machines of several processes each: what goes between machines goes once, not once for
/// each process.
#include <algorithm>
#include <cstring>
#include <deque>

#include "tinygrad/runtime/world/exchange_kinds.h"
#include "tinygrad/runtime/world/segment.h"

namespace tg {
namespace {
/// Bytes of a segment that each process combines between machines, and how many segments are under way at once.
constexpr size_t kOwnedBytes = 256 << 10;
constexpr size_t kWindow = 4;

/// The group as its levels see it.
struct Levels {
  Levels(const ExchangeArgs& a, const Hierarchy& h)
      : mpi(a.mpi), local(a.c), cross(a.c), place(h.place), machine(h.machine) {
    local.group = h.local();
    cross.group = h.cross();
  }
  Mpi& mpi;
  Collective local, cross;
  size_t place, machine;  ///< of this process
};

/// Chunks of one machine's memory, each combined by one process there and then with those of the other machines.
class SumOfMachines final : public Exchange {
 public:
  SumOfMachines(const Levels& l, int tag, std::vector<std::span<const std::byte>> chunks,
                std::vector<std::byte*> results)
      : levels_(l), tag_(tag), results_(std::move(results)), messages_(l.mpi) {
    for (const auto& c : chunks) sizes_.push_back(c.size());
    std::vector<std::byte*> own(chunks.size(), nullptr);
    own[l.place] = results_[l.place];
    stage_ = std::make_unique<Segment>(l.mpi, l.local, l.place, tag, std::move(chunks), std::move(own));
  }
  bool advance(bool* moved) override {
    while (stage_) {
      if (!stage_->advance(moved)) return false;
      stage_.reset();
      if (crossed_) spread();
      else cross();
    }
    return messages_.all_done(moved);
  }
  std::vector<int> missing() const override { return stage_ ? stage_->missing() : messages_.missing(); }

 private:
  void cross() {
    crossed_ = true;
    std::byte* const mine = results_[levels_.place];
    const size_t n = levels_.cross.group.size();
    const std::vector<size_t> at =
        parts_of(sizes_[levels_.place], n, static_cast<size_t>(levels_.cross.dtype.itemsize()));
    std::vector<std::span<const std::byte>> chunks;
    std::vector<std::byte*> results;
    for (size_t p = 0; p < n; p++) {
      chunks.emplace_back(mine + at[p], at[p + 1] - at[p]);
      results.push_back(mine + at[p]);
    }
    // The same tags: these are other processes.
    stage_ = std::make_unique<Segment>(levels_.mpi, levels_.cross, levels_.machine, tag_, std::move(chunks),
                                       std::move(results));
  }
  void spread() {
    const std::vector<int>& here = levels_.local.group;
    for (size_t p = 0; p < here.size(); p++) {
      if (p == levels_.place) continue;
      messages_.receive(results_[p], sizes_[p], here[p], tag_ + 1);
      messages_.send(results_[levels_.place], sizes_[levels_.place], here[p], tag_ + 1);
    }
  }
  const Levels& levels_;
  int tag_;
  std::vector<size_t> sizes_;
  std::vector<std::byte*> results_;
  Messages messages_;
  std::unique_ptr<Segment> stage_;
  bool crossed_ = false;
};

/// The same elements of all pieces: of those that processes at one place get, one process of each machine combines
/// those of its machine; then each gets its own from the others at its place.
class ScatteredSum final : public Exchange {
 public:
  /// chunk(machine, place): where this process has them.
  template <class F>
  ScatteredSum(const Levels& l, int tag, size_t bytes, const F& chunk, std::byte* out)
      : levels_(l), tag_(tag), bytes_(bytes), out_(out), sums_(bytes * l.cross.group.size()) {
    for (size_t m = 0; m < l.cross.group.size(); m++) {
      std::vector<std::span<const std::byte>> chunks;
      std::vector<std::byte*> results(l.local.group.size(), nullptr);
      for (size_t p = 0; p < l.local.group.size(); p++) chunks.emplace_back(chunk(m, p), bytes);
      results[l.place] = sums_.data() + m * bytes;
      // Messages of one tag arrive in the order they were sent in.
      stages_.push_back(std::make_unique<Segment>(l.mpi, l.local, l.place, tag, std::move(chunks), std::move(results)));
    }
  }
  bool advance(bool* moved) override {
    std::erase_if(stages_, [&](const std::unique_ptr<Segment>& s) { return s->advance(moved); });
    if (!stages_.empty() || crossed_) return stages_.empty();
    crossed_ = true;
    std::vector<std::span<const std::byte>> chunks;
    std::vector<std::byte*> results(levels_.cross.group.size(), nullptr);
    for (size_t m = 0; m < results.size(); m++) chunks.emplace_back(sums_.data() + m * bytes_, bytes_);
    results[levels_.machine] = out_;
    stages_.push_back(std::make_unique<Segment>(levels_.mpi, levels_.cross, levels_.machine, tag_, std::move(chunks),
                                                std::move(results)));
    return false;
  }
  std::vector<int> missing() const override {
    return stages_.empty() ? std::vector<int>() : stages_.front()->missing();
  }

 private:
  const Levels& levels_;
  int tag_;
  size_t bytes_;
  std::byte* out_;
  Room sums_;
  std::deque<std::unique_ptr<Segment>> stages_;
  bool crossed_ = false;
};

/// Returns the positions in the group, which are those of the pieces, by machine and place.
std::vector<std::vector<size_t>> pieces_of(const std::vector<int>& group, const Hierarchy& h) {
  std::vector<std::vector<size_t>> out;
  for (const std::vector<int>& machine : h.ranks) {
    out.emplace_back();
    for (const int r : machine) out.back().push_back(position_of(group, r));
  }
  return out;
}

/// A sum, segment by segment.
class HierarchicalSum final : public Exchange {
 public:
  HierarchicalSum(const ExchangeArgs& a, const Hierarchy& h)
      : c_(a.c), levels_(a, h), pieces_(pieces_of(c_.group, h)), in_(a.in), out_(a.out), tag_(a.tag) {
    start_more();
  }
  bool advance(bool* moved) override {
    std::erase_if(active_, [&](const std::unique_ptr<Exchange>& s) { return s->advance(moved); });
    start_more();
    return active_.empty();
  }
  std::vector<int> missing() const override {
    return active_.empty() ? std::vector<int>() : active_.front()->missing();
  }

 private:
  static_assert(2 * (kWindow + 1) <= kTags);
  size_t size() const { return static_cast<size_t>(c_.dtype.itemsize()); }
  size_t elements() const { return static_cast<size_t>(c_.elements); }
  void start_more() {
    while (active_.size() < kWindow && next_ < elements())
      c_.what == CollectiveKind::kReduceScatter ? begin_pieces() : begin_whole();
  }
  int next_tag() { return tag_ + 2 * (number_++ % (kTags / 2)); }
  void begin_whole() {
    const size_t n = levels_.local.group.size();
    const size_t end = std::min(elements(), next_ + kOwnedBytes / size() * c_.group.size());
    const std::vector<size_t> at = parts_of((end - next_) * size(), n, size());
    std::vector<std::span<const std::byte>> chunks;
    std::vector<std::byte*> results;
    for (size_t p = 0; p < n; p++) {
      chunks.emplace_back(in_ + next_ * size() + at[p], at[p + 1] - at[p]);
      results.push_back(out_ + next_ * size() + at[p]);
    }
    next_ = end;
    active_.push_back(std::make_unique<SumOfMachines>(levels_, next_tag(), std::move(chunks), std::move(results)));
  }
  void begin_pieces() {
    const size_t from = next_, end = std::min(elements(), from + kOwnedBytes / size());
    const auto chunk = [&](size_t machine, size_t place) {
      return in_ + (pieces_[machine][place] * elements() + from) * size();
    };
    next_ = end;
    active_.push_back(
        std::make_unique<ScatteredSum>(levels_, next_tag(), (end - from) * size(), chunk, out_ + from * size()));
  }
  const Collective c_;
  Levels levels_;
  std::vector<std::vector<size_t>> pieces_;
  const std::byte* in_;
  std::byte* out_;
  int tag_, number_ = 0;
  size_t next_ = 0;
  std::deque<std::unique_ptr<Exchange>> active_;
};

/// A process gets the pieces of those at its place, and then, from the others of its machine, those they got.
class HierarchicalGather final : public Exchange {
 public:
  HierarchicalGather(const ExchangeArgs& a, const Hierarchy& h)
      : messages_(a.mpi), h_(h), pieces_(pieces_of(a.c.group, h)), bytes_(a.c.piece_bytes()), out_(a.out), tag_(a.tag) {
    if (std::byte* const own = piece(h.machine, h.place); bytes_ && own != a.in) std::memmove(own, a.in, bytes_);
    for (size_t m = 0; m < h.machines(); m++)
      if (m != h.machine) swap(h.ranks[m][h.place], piece(m, h.place), piece(h.machine, h.place), tag_);
  }
  bool advance(bool* moved) override {
    if (!messages_.all_done(moved)) return false;
    if (spread_) return true;
    spread_ = true;
    for (size_t p = 0; p < h_.places(); p++)
      for (size_t m = 0; m < h_.machines() && p != h_.place; m++)  // in the order they are received in
        swap(h_.local()[p], piece(m, p), piece(m, h_.place), tag_ + 1);
    return messages_.all_done(moved);
  }
  std::vector<int> missing() const override { return messages_.missing(); }

 private:
  std::byte* piece(size_t machine, size_t place) const { return out_ + pieces_[machine][place] * bytes_; }
  void swap(int with, std::byte* theirs, const std::byte* ours, int tag) {
    messages_.receive(theirs, bytes_, with, tag);
    messages_.send(ours, bytes_, with, tag);
  }
  Messages messages_;
  const Hierarchy h_;
  std::vector<std::vector<size_t>> pieces_;
  size_t bytes_;
  std::byte* out_;
  int tag_;
  bool spread_ = false;
};
}  // namespace

std::unique_ptr<Exchange> start_hierarchy(const ExchangeArgs& a, const Hierarchy& h) {
  if (a.c.what == CollectiveKind::kAllGather) return std::make_unique<HierarchicalGather>(a, h);
  return std::make_unique<HierarchicalSum>(a, h);
}

}  // namespace tg
