/// \file Exchanges on several machines of several processes each: what goes between machines goes once, not once for
/// each process.
#include <algorithm>
#include <cstring>

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

static_assert(2 * (kWindow + 1) <= Exchange::kTags);

/// Chunks of one machine's memory, each combined by one process there and then with those of the other machines.
class SumOfMachines final : public Exchange {
 public:
  SumOfMachines(const Levels& l, int tag, Chunks chunks)
      : levels_(l), tag_(tag), results_(chunks.to), messages_(l.mpi) {
    for (const auto& c : chunks.from) sizes_.push_back(c.size());
    std::ranges::fill(chunks.to, nullptr);
    chunks.to[l.place] = results_[l.place];
    stage_ = std::make_unique<Segment>(l.mpi, l.local, l.place, tag, std::move(chunks));
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
    // The same tags: these are other processes.
    stage_ = std::make_unique<Segment>(levels_.mpi, levels_.cross, levels_.machine, tag_,
                                       chunks_of(mine, mine, sizes_[levels_.place], levels_.cross.group.size(),
                                                 static_cast<size_t>(levels_.cross.dtype.itemsize())));
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
    const size_t places = l.local.group.size();
    for (size_t m = 0; m < l.cross.group.size(); m++) {
      Chunks chunks{{}, std::vector<std::byte*>(places, nullptr)};
      for (size_t p = 0; p < places; p++) chunks.from.emplace_back(chunk(m, p), bytes);
      chunks.to[l.place] = sums_.data() + m * bytes;
      // Messages of one tag arrive in the order they were sent in.
      stages_.push_back(std::make_unique<Segment>(l.mpi, l.local, l.place, tag, std::move(chunks)));
    }
  }
  bool advance(bool* moved) override {
    std::erase_if(stages_, [&](const std::unique_ptr<Segment>& s) { return s->advance(moved); });
    if (!stages_.empty() || crossed_) return stages_.empty();
    crossed_ = true;
    Chunks chunks{{}, std::vector<std::byte*>(levels_.cross.group.size(), nullptr)};
    for (size_t m = 0; m < chunks.to.size(); m++) chunks.from.emplace_back(sums_.data() + m * bytes_, bytes_);
    chunks.to[levels_.machine] = out_;
    stages_.push_back(std::make_unique<Segment>(levels_.mpi, levels_.cross, levels_.machine, tag_, std::move(chunks)));
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
  std::vector<std::unique_ptr<Segment>> stages_;
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
class HierarchicalSum final : public InSegments {
 public:
  HierarchicalSum(const ExchangeArgs& a, const Hierarchy& h)
      : InSegments(a, kOwnedBytes / static_cast<size_t>(a.c.dtype.itemsize()) * (scatters(a.c) ? 1 : a.c.group.size()),
                   kWindow),
        levels_(a, h),
        pieces_(pieces_of(a.c.group, h)) {}

 private:
  static bool scatters(const Collective& c) { return c.what == CollectiveKind::kReduceScatter; }
  std::unique_ptr<Exchange> begin(size_t from, size_t to, int tag) override {
    const size_t bytes = (to - from) * size();
    if (!scatters(c_))
      return std::make_unique<SumOfMachines>(
          levels_, tag,
          chunks_of(in_ + from * size(), out_ + from * size(), bytes, levels_.local.group.size(), size()));
    const auto chunk = [&](size_t machine, size_t place) {
      return in_ + (pieces_[machine][place] * elements() + from) * size();
    };
    return std::make_unique<ScatteredSum>(levels_, tag, bytes, chunk, out_ + from * size());
  }
  Levels levels_;
  std::vector<std::vector<size_t>> pieces_;
};

/// A process gets the pieces of those at its place, and then, from the others of its machine, those they got.
class HierarchicalGather final : public TwoRounds {
 public:
  HierarchicalGather(const ExchangeArgs& a, const Hierarchy& h)
      : TwoRounds(a.mpi), h_(h), pieces_(pieces_of(a.c.group, h)), bytes_(a.c.piece_bytes()), out_(a.out), tag_(a.tag) {
    if (std::byte* const own = piece(h.machine, h.place); bytes_ && own != a.in) std::memmove(own, a.in, bytes_);
    for (size_t m = 0; m < h.machines(); m++)
      if (m != h.machine) swap(h.ranks[m][h.place], piece(m, h.place), piece(h.machine, h.place), tag_);
  }

 private:
  void second_round() override {
    for (size_t p = 0; p < h_.places(); p++)
      for (size_t m = 0; m < h_.machines() && p != h_.place; m++)  // in the order they are received in
        swap(h_.local()[p], piece(m, p), piece(m, h_.place), tag_ + 1);
  }
  std::byte* piece(size_t machine, size_t place) const { return out_ + pieces_[machine][place] * bytes_; }
  void swap(int with, std::byte* theirs, const std::byte* ours, int tag) {
    messages_.receive(theirs, bytes_, with, tag);
    messages_.send(ours, bytes_, with, tag);
  }
  const Hierarchy h_;
  std::vector<std::vector<size_t>> pieces_;
  size_t bytes_;
  std::byte* out_;
  int tag_;
};
}  // namespace

std::unique_ptr<Exchange> start_hierarchy(const ExchangeArgs& a, const Hierarchy& h) {
  if (a.c.what == CollectiveKind::kAllGather) return std::make_unique<HierarchicalGather>(a, h);
  return std::make_unique<HierarchicalSum>(a, h);
}

}  // namespace tg
