/// \file The exchanges, by what they do.
#pragma once
#include <deque>
#include <memory>

#include "tinygrad/runtime/world/algorithm.h"
#include "tinygrad/runtime/world/exchange.h"

namespace tg {

/// What each takes: process `me` of the group, its memory, and its tags.
struct ExchangeArgs {
  Mpi& mpi;
  const Collective& c;
  int me;
  const std::byte* in;
  std::byte* out;
  int tag;
};

/// Messages of one round, after which finish() is called.
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

/// Messages of one round, after which second_round() posts those of another one. Who has nothing to wait for in the
/// first one calls begin_second() at once.
class TwoRounds : public Exchange {
 public:
  explicit TwoRounds(Mpi& mpi) : messages_(mpi) {}
  bool advance(bool* moved) override {
    if (!messages_.all_done(moved)) return false;
    if (second_) return true;
    *moved = true;
    begin_second();
    return messages_.all_done(moved);
  }
  std::vector<int> missing() const override { return messages_.missing(); }

 protected:
  virtual void second_round() = 0;
  void begin_second() {
    second_ = true;
    second_round();
  }
  Messages messages_;

 private:
  bool second_ = false;
};

/// The elements of an operation in segments, in their order, several under way at once: while some are sent others are
/// combined.
class InSegments : public Exchange {
 public:
  /// `each`: elements of a segment; `window`: how many are under way.
  InSegments(const ExchangeArgs& a, size_t each, size_t window)
      : c_(a.c), in_(a.in), out_(a.out), each_(each), window_(window), tag_(a.tag) {}
  bool advance(bool* moved) override;
  std::vector<int> missing() const override;

 protected:
  /// Begins a segment of elements [from, to). It may use `tag` and `tag` + 1.
  virtual std::unique_ptr<Exchange> begin(size_t from, size_t to, int tag) = 0;
  size_t size() const { return static_cast<size_t>(c_.dtype.itemsize()); }
  size_t elements() const { return static_cast<size_t>(c_.elements); }
  const Collective c_;
  const std::byte* in_;
  std::byte* out_;

 private:
  size_t each_, window_, next_ = 0;
  int tag_, number_ = 0;
  std::deque<std::unique_ptr<Exchange>> active_;
};

/// all_gather, all_to_all, send, receive: pieces go to those who need them.
std::unique_ptr<Exchange> start_moves(const ExchangeArgs& a);
std::unique_ptr<Exchange> start_broadcast(const ExchangeArgs& a, Algorithm way);
/// allreduce and reduce_scatter.
std::unique_ptr<Exchange> start_sum(const ExchangeArgs& a, Algorithm way);
/// allreduce, reduce_scatter and all_gather on several machines.
std::unique_ptr<Exchange> start_hierarchy(const ExchangeArgs& a, const Hierarchy& h);

}  // namespace tg
