/// \file Nodes and their homes: identity, counting, scopes, threads, walks.
#include "tinygrad/uop/graph.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph_lock.h"

namespace tg {
namespace {
using namespace dtypes;

UOp buffer(int64_t slot, int64_t n = 4) {
  return UOp::make(Ops::BUFFER, float32, {UOp::shape_stack(std::vector<int64_t>{n})},
                   Arg(ParamArg{slot, AddrSpace::kGlobal, "CPU"}));
}

TEST(Node, StructuralEqualityIsPointerEquality) {
  Arena arena;
  ArenaScope scope(arena);
  UOp a = UOp::range(8, 0), b = UOp::range(8, 0), c = UOp::range(8, 1);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(a + c, b + c);
  EXPECT_NE(a + c, c + a);
  EXPECT_NE(a.cast(int32), a.cast(int64));
  EXPECT_NE(UOp::constant(ConstValue(1), int32), UOp::constant(ConstValue(1), int64));
  EXPECT_NE(UOp::constant(ConstValue(0.0), float32), UOp::constant(ConstValue(-0.0), float32));
  EXPECT_EQ(UOp::constant(ConstValue(NAN), float32), UOp::constant(ConstValue(-NAN), float32));
  EXPECT_EQ(UOp::constant(ConstValue(300), uint8), UOp::constant(ConstValue(44), uint8));
  EXPECT_EQ(UOp::constant(ConstValue(static_cast<int128>(1) << 100), weakint).const_int(), static_cast<int128>(1)
                                                                                               << 100);
  EXPECT_EQ(UOp::variable("n", 1, 4), UOp::variable("n", 1, 4));
  EXPECT_NE(UOp::variable("n", 1, 4), UOp::variable("n", 1, 5));
}

TEST(Node, KeysAreTheSameInEveryRun) {
  Arena arena;
  ArenaScope scope(arena);
  UOp i = UOp::range(16, 0),
      p = UOp::make(Ops::PARAM, float32, {UOp::shape_stack(std::vector<int64_t>{16})}, Arg(ParamArg{1}));
  UOp value = p.index({i * 2 + 1}).load() * UOp::constant(ConstValue(0.5), float32);
  // Keys of caches on disk. New ops shift the numbers of those behind them, which changes it; nothing else may.
  EXPECT_EQ(value.key().to_hex(), "cadef4ae94d2d09c4387ceccb37b46fc");
  EXPECT_EQ(value.rtag(7).key(), value.key());
  EXPECT_NE(value.with_dtype(float16).key(), value.key());
}

TEST(Node, TagsAndReplacement) {
  Arena arena;
  ArenaScope scope(arena);
  UOp a = UOp::range(8, 0), b = UOp::range(8, 1), s = a + b, t = s.rtag(3);
  EXPECT_NE(s, t);
  EXPECT_EQ(t.tag(), 3u);
  EXPECT_EQ(t.rtag(0), s);
  EXPECT_EQ(t.with_srcs(UOps{b, a}).tag(), 3u);
  EXPECT_EQ(t.with_dtype(int32).tag(), 3u);
  EXPECT_EQ(a.rtag(5).with_arg(RangeArg{{9}, AxisType::kReduce}).tag(), 5u);
  EXPECT_EQ((t * 2).substitute({{a, b}}).src(0).tag(), 3u);
  EXPECT_EQ(s.arg_kind(), ArgKind::kNone);
  EXPECT_THROW(s.arg<RangeArg>(), InternalError);
  EXPECT_THROW(UOp::alu(Ops::ADD, {a, UOp::constant(ConstValue(1), int32).cast(int64)}), InternalError);
}

TEST(Node, WeakLiteralsTakeTheOtherType) {
  Arena arena;
  ArenaScope scope(arena);
  UOp f = UOp::make(Ops::PARAM, float16, {UOp::shape_stack(std::vector<int64_t>{4})}, Arg(ParamArg{0}));
  EXPECT_EQ((f + UOp::constant(int64_t{2})).src(1), UOp::constant(ConstValue(2.0), float16));
  EXPECT_EQ((f < ConstValue(3)).dtype(), bool_);
  EXPECT_EQ((f < ConstValue(3)).where(f, UOp::constant(int64_t{0})).dtype(), float16);
}

TEST(Graph, NoScopeNoNodes) {
  std::thread([] { EXPECT_THROW(UOp::constant(int64_t{1}), Error); }).join();
}

TEST(Graph, ScopeFreesWhatNobodyOwns) {
  size_t before;
  {
    GraphScope scope;
    before = Graph::global().live_nodes();
  }
  UOpRef kept;
  {
    GraphScope scope;
    UOp x = buffer(900001), y = buffer(900002);
    kept = x * x;
    UOp dropped = x + y;
    EXPECT_EQ(dropped.nsrc(), 2u);
  }
  size_t with = Graph::global().live_nodes();
  EXPECT_GE(with, before + 2);  // MUL and BUFFER (the shape may have been there)
  EXPECT_LE(with, before + 4);
  UOpRef copy = kept;
  kept = {};
  EXPECT_EQ(Graph::global().live_nodes(), with);
  EXPECT_TRUE(copy.get().is(Ops::MUL));
  copy = {};
  EXPECT_EQ(Graph::global().live_nodes(), before);
}

TEST(Graph, NestedScopesSweepAtTheOutermost) {
  GraphScope outer;
  UOp x = buffer(900010);
  {
    GraphScope inner;
    UOp y = x + buffer(900011);
    EXPECT_EQ(y.src(0), x);
  }
  EXPECT_EQ(x.arg<ParamArg>().slot, 900010);  // still here
}

TEST(Graph, DeadBuffersAreReported) {
  // The hook belongs to the library; here only the count of nodes is watched.
  size_t before = Graph::global().live_nodes();
  {
    GraphScope scope;
    for (int i = 0; i < 100; i++) buffer(910000 + i, 77);
  }
  EXPECT_EQ(Graph::global().live_nodes(), before);
}

TEST(Graph, ManyThreadsShareOneGraph) {
  size_t before = Graph::global().live_nodes();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      std::vector<UOpRef> held;
      for (int round = 0; round < 200; round++) {
        GraphScope scope;
        UOp x = buffer(920000), y = buffer(920001 + (round + t) % 5);  // the same nodes from every thread
        UOp s = x;
        for (int k = 0; k < 10; k++) s = s * y + x;
        if (shape_of(s) != Shape{4} || s.dtype() != float32) wrong++;
        held.push_back(s);
        if (held.size() > 8) held.erase(held.begin());
      }
      UOpRef outside = held.back();  // copied and dropped without the lock
      held.clear();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Graph::global().live_nodes(), before);
}

TEST(Graph, MillionNodeChain) {
  size_t before = Graph::global().live_nodes();
  {
    GraphScope scope;
    UOp u = buffer(930000);
    for (int64_t i = 1; i < 500000; i++) u = u + buffer(930000 + i);
    EXPECT_EQ(shape_of(u), Shape{4});
    EXPECT_EQ(device_of(u), "CPU");
    EXPECT_TRUE(ranges_of(u).empty());
    EXPECT_EQ(u.toposort().size(), 999999u + 2);
    EXPECT_EQ(u.substitute({{buffer(930000), buffer(930001)}}).toposort().size(), 999998u + 2);
  }
  EXPECT_EQ(Graph::global().live_nodes(), before);
  {
    GraphScope scope;
    EXPECT_EQ(buffer(930000) + buffer(930001), buffer(930000) + buffer(930001));
  }  // ids and table are usable after the great death
}

TEST(Graph, ImportReplacesAndShares) {
  Arena from;
  UOp root, p;
  {
    ArenaScope scope(from);
    p = UOp::variable("n", 0, 9);
    root = (p + 1) * (p + 1);
  }
  Arena to;
  ArenaScope scope(to);
  UOp same = import_graph(from.graph(), root);
  EXPECT_NE(same, root);
  EXPECT_EQ(same.key(), root.key());
  EXPECT_EQ(same.src(0), same.src(1));
  UOp five = UOp::constant(int64_t{5});
  UOp other = import_graph(from.graph(), root, [&](UOp u) { return u == p ? five : UOp(); });
  EXPECT_EQ(other, (five + UOp::constant(int64_t{1})) * (five + UOp::constant(int64_t{1})));
}

TEST(Graph, Forwarding) {
  GraphScope scope;
  UOp x = buffer(940000), s = x + x, out = buffer(940001);
  EXPECT_FALSE(Graph::global().forwarded(s));
  Graph::global().forward(s, out);
  EXPECT_EQ(Graph::global().forwarded(s), out);
}

TEST(Walk, ToposortIsSourcesFirstAndDeterministic) {
  Arena arena;
  ArenaScope scope(arena);
  UOp a = UOp::range(8, 0), b = UOp::range(8, 1), u = (a + b) * (a + b) + a;
  UOps order = u.toposort();
  std::vector<UOp> seen;
  for (UOp n : order) {
    for (UOp s : n.srcs()) EXPECT_NE(std::find(seen.begin(), seen.end(), s), seen.end());
    seen.push_back(n);
  }
  EXPECT_EQ(order.back(), u);
  EXPECT_EQ(order.size(), 6u);
}

TEST(Walk, Substitute) {
  Arena arena;
  ArenaScope scope(arena);
  UOp a = UOp::range(8, 0), b = UOp::range(8, 1), c = UOp::range(8, 2);
  EXPECT_EQ((a + b).substitute({{a, b}, {b, a}}), b + a);          // at once, not one after the other
  EXPECT_EQ((a + b).substitute({{a + b, c}, {a, b}}), c);          // the outer one wins
  EXPECT_EQ((a * a).substitute({{a, a + b}}), (a + b) * (a + b));  // replacements are not searched
  EXPECT_EQ((a + b).substitute({{c, a}}), a + b);
}

TEST(Walk, Variables) {
  Arena arena;
  ArenaScope scope(arena);
  UOp n = UOp::variable("n", 1, 4), m = UOp::variable("m", 1, 4), r = UOp::range(n, RangeArg{{0}, AxisType::kLoop});
  EXPECT_EQ((r + m + n).variables(), (UOps{m, n}));
  EXPECT_TRUE((r + m).depends_on(n));
  EXPECT_FALSE(m.depends_on(n));
}

TEST(GraphLock, WhoWaitsMayDoSomethingElseMeanwhile) {
  static std::atomic<int> waits{0};
  set_graph_wait([](std::recursive_mutex& lock) {
    waits++;
    lock.lock();
  });
  std::atomic<bool> held{false};
  std::thread other([&] {
    GraphScope g;
    held = true;
    while (waits == 0) std::this_thread::yield();
  });
  while (!held) std::this_thread::yield();
  {
    GraphScope g;
    GraphScope nested;  // one's own lock is no reason to wait
  }
  other.join();
  EXPECT_EQ(waits, 1);
  set_graph_wait([](std::recursive_mutex& lock) { lock.lock(); });
}

}  // namespace
}  // namespace tg
