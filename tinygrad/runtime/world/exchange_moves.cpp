/// \file Values that are moved and not combined.
#include <algorithm>
#include <cstring>

#include "tinygrad/runtime/world/exchange_kinds.h"
#include "tinygrad/runtime/world/segment.h"

namespace tg {
namespace {

void keep(std::byte* to, const std::byte* from, size_t n) {
  if (n && from != to) std::memmove(to, from, n);
}

class Moved final : public OneRound {
 public:
  explicit Moved(const ExchangeArgs& a) : OneRound(a.mpi) {
    const Collective& c = a.c;
    const size_t n = c.piece_bytes();
    if (c.what == CollectiveKind::kSend) {
      messages_.send(a.in, n, c.root, a.tag);
      keep(a.out, a.in, n);
    } else if (c.what == CollectiveKind::kReceive) messages_.receive(a.out, n, c.root, a.tag);
    else exchange(a, position_of(c.group, a.me), c.what == CollectiveKind::kAllToAll);
  }

 private:
  /// Everybody sends one piece to all, or to each another one.
  void exchange(const ExchangeArgs& a, size_t me, bool each) {
    const std::vector<int>& group = a.c.group;
    const size_t n = a.c.piece_bytes();
    for (size_t k = 1; k < group.size(); k++) {
      const size_t p = (me + k) % group.size();
      messages_.receive(a.out + p * n, n, group[p], a.tag);
    }
    for (size_t k = 1; k < group.size(); k++) {
      const size_t p = (me + group.size() - k) % group.size();
      messages_.send(a.in + (each ? p : 0) * n, n, group[p], a.tag);
    }
    keep(a.out + me * n, a.in + (each ? me : 0) * n, n);
  }
};

class DirectBroadcast final : public OneRound {
 public:
  explicit DirectBroadcast(const ExchangeArgs& a) : OneRound(a.mpi) {
    const size_t n = a.c.piece_bytes();
    const int root = a.c.group[static_cast<size_t>(a.c.root)];
    if (a.me != root) {
      messages_.receive(a.out, n, root, a.tag);
      return;
    }
    for (const int r : a.c.group)
      if (r != root) messages_.send(a.in, n, r, a.tag);
    keep(a.out, a.in, n);
  }
};

/// A binomial tree: the process at place p, counted from the root, has the value from the one whose place lacks the
/// lowest bit of p, and sends it to those whose places have one lower bit more.
class TreeBroadcast final : public TwoRounds {
 public:
  explicit TreeBroadcast(const ExchangeArgs& a)
      : TwoRounds(a.mpi), c_(a.c), out_(a.out), tag_(a.tag), n_(c_.group.size()) {
    place_ = (position_of(c_.group, a.me) + n_ - static_cast<size_t>(c_.root)) % n_;
    if (place_ == 0) {
      keep(out_, a.in, c_.piece_bytes());
      begin_second();
    } else messages_.receive(out_, c_.piece_bytes(), at(place_ & (place_ - 1)), tag_);
  }

 private:
  int at(size_t place) const { return c_.group[(place + static_cast<size_t>(c_.root)) % n_]; }
  /// Sends it on, the farthest first: they have most to send on.
  void second_round() override {
    size_t bit = 1;
    while (bit < n_ && !(place_ & bit)) bit *= 2;
    while (bit /= 2)
      if (place_ + bit < n_) messages_.send(out_, c_.piece_bytes(), at(place_ + bit), tag_);
  }
  const Collective c_;
  std::byte* out_;
  int tag_;
  size_t n_, place_;
};

/// The root gives each process a part, which sends it to all others but the root (R. van de Geijn, 1994).
class PartsBroadcast final : public TwoRounds {
 public:
  explicit PartsBroadcast(const ExchangeArgs& a)
      : TwoRounds(a.mpi), c_(a.c), out_(a.out), tag_(a.tag), me_(position_of(c_.group, a.me)) {
    at_ = parts_of(c_.piece_bytes(), c_.group.size(), static_cast<size_t>(c_.dtype.itemsize()));
    if (me_ != root()) {
      messages_.receive(out_ + at_[me_], size(me_), c_.group[root()], tag_);
      return;
    }
    keep(out_, a.in, c_.piece_bytes());
    for (size_t p = 0; p < c_.group.size(); p++)
      if (p != root()) messages_.send(out_ + at_[p], size(p), c_.group[p], tag_);
    begin_second();
  }

 private:
  size_t root() const { return static_cast<size_t>(c_.root); }
  size_t size(size_t p) const { return at_[p + 1] - at_[p]; }
  void second_round() override {
    for (size_t k = 1; k < c_.group.size(); k++) {
      const size_t from = (me_ + k) % c_.group.size(), to = (me_ + c_.group.size() - k) % c_.group.size();
      if (me_ != root()) messages_.receive(out_ + at_[from], size(from), c_.group[from], tag_ + 1);
      if (to != root()) messages_.send(out_ + at_[me_], size(me_), c_.group[to], tag_ + 1);
    }
  }
  const Collective c_;
  std::byte* out_;
  int tag_;
  size_t me_;
  std::vector<size_t> at_;
};

}  // namespace

std::unique_ptr<Exchange> start_moves(const ExchangeArgs& a) { return std::make_unique<Moved>(a); }

std::unique_ptr<Exchange> start_broadcast(const ExchangeArgs& a, Algorithm way) {
  if (way == Algorithm::kTree) return std::make_unique<TreeBroadcast>(a);
  if (way == Algorithm::kParts) return std::make_unique<PartsBroadcast>(a);
  return std::make_unique<DirectBroadcast>(a);
}

}  // namespace tg
