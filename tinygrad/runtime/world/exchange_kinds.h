/// \file The exchanges, by what they do.
#pragma once
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

/// all_gather, all_to_all, send, receive: pieces go to those who need them.
std::unique_ptr<Exchange> start_moves(const ExchangeArgs& a);
std::unique_ptr<Exchange> start_broadcast(const ExchangeArgs& a, Algorithm way);
/// allreduce and reduce_scatter.
std::unique_ptr<Exchange> start_sum(const ExchangeArgs& a, Algorithm way);
/// allreduce, reduce_scatter and all_gather on several machines.
std::unique_ptr<Exchange> start_hierarchy(const ExchangeArgs& a, const Hierarchy& h);

}  // namespace tg
