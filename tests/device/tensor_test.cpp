/// \file What realizing, assigning and reading mean, on the device under test.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "tinygrad/base/context.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using V = std::vector<float>;
V values(const Tensor& t) { return t.to_vector<float>(); }

TEST(Realize, ValuesAndHandles) {
  Tensor x({{1.f, 2.f}, {3.f, 4.f}}), y = x * 2 + 1, same = y;
  EXPECT_EQ(values(y), (V{3, 5, 7, 9}));
  EXPECT_TRUE(y.is_realized());
  EXPECT_TRUE(same.is_realized()) << "copies of a handle are one tensor";
  EXPECT_EQ(values(y.T()), (V{3, 7, 5, 9}));
  EXPECT_EQ(y.data<float>()[2], 7);
  EXPECT_EQ(x.sum().item<float>(), 10);
  EXPECT_EQ((x > 2).to_vector<bool>(), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(Tensor(3).item<int>(), 3);
  EXPECT_EQ((Tensor(3) + 4).item<int>(), 7);
  EXPECT_EQ(values(Tensor::full({2}, 7.0)), (V{7, 7}));
  EXPECT_EQ(Tensor::arange(5).to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(Tensor::zeros(0, 3)), V{});
}

TEST(Realize, SeveralTensorsInOneSchedule) {
  Tensor x({1.f, 2.f, 3.f}), a = x + 1, b = a * 2, c = b.sum();
  realize(a, b, c);
  EXPECT_TRUE(a.is_realized() && b.is_realized() && c.is_realized());
  EXPECT_EQ(values(b), (V{4, 6, 8}));
  EXPECT_EQ(c.item<float>(), 18);
}

TEST(Realize, SecondRunHitsTheScheduleCache) {
  Context lazy{{"EAGER", 0}};
  auto run = [](float v) {
    Tensor x({v, 2 * v});
    Tensor y = (x * 3).exp2();
    return y.schedule().cache_hit;
  };
  run(1);
  EXPECT_TRUE(run(2));
}

TEST(Assign, InPlace) {
  Tensor x({1.f, 2.f, 3.f});
  Tensor view = x.reshape(3, 1), before = x * 10;
  x += 1;
  EXPECT_EQ(values(x), (V{2, 3, 4}));
  EXPECT_EQ(values(view), (V{2, 3, 4})) << "views see the write";
  EXPECT_EQ(values(before), (V{10, 20, 30})) << "pending expressions read the old value";
  EXPECT_EQ(values(x * 10), (V{20, 30, 40}));
}

TEST(Assign, PartOfATensor) {
  Tensor x = Tensor::arange(6).to_float().contiguous().realize();
  x(Slice(1, 3)).assign(9);
  x(Slice(4, None)).assign(Tensor({7.f, 8.f}));
  EXPECT_EQ(values(x), (V{0, 9, 9, 3, 7, 8}));
  Tensor m = Tensor::zeros(2, 3).contiguous().realize();
  m(1).assign(Tensor({1.f, 2.f, 3.f}));
  m.T()(0).assign(5);
  EXPECT_EQ(values(m), (V{5, 0, 0, 5, 2, 3}));
  m.setitem({Index(0), Index(Slice(None, None, 2))}, 4.0);
  EXPECT_EQ(values(m), (V{4, 0, 4, 5, 2, 3}));
  Tensor fresh = Tensor::zeros(4);
  fresh.setitem({Index(2)}, 1.0);
  EXPECT_EQ(values(fresh), (V{0, 0, 1, 0}));
  fresh.setitem({Index(Tensor({0, -1}))}, Tensor({5.f, 6.f}));
  EXPECT_EQ(values(fresh), (V{5, 0, 1, 6}));
}

TEST(Assign, SeveralTimes) {
  Tensor x({1.f, 2.f});
  for (int i = 0; i < 3; i++) x.assign(x * 2);
  EXPECT_EQ(values(x), (V{8, 16}));
  for (int i = 0; i < 3; i++) {
    x.assign(x + 1);
    x.realize();
  }
  EXPECT_EQ(values(x), (V{11, 19}));
  Tensor a({1.f}), b({2.f});
  Tensor old_a = a + 0;
  a.assign(b);
  b.assign(old_a);
  realize(a, b);
  EXPECT_EQ(values(a), (V{2}));
  EXPECT_EQ(values(b), (V{1}));
}

TEST(Assign, OverlappingSource) {
  Tensor x({1.f, 2.f, 3.f, 4.f});
  x.assign(x.flip(0));
  EXPECT_EQ(values(x), (V{4, 3, 2, 1}));
  x(Slice(0, 3)).assign(x(Slice(1, 4)));
  EXPECT_EQ(values(x), (V{3, 2, 1, 1}));
}

TEST(Assign, EqualExpressionsBeforeAndAfterAreDifferent) {
  // The node of w * 2 lives on in a loss that keeps its history; after the update w * 2 must not be taken for it.
  Tensor w({1.f, 2.f}, {.requires_grad = true});
  Tensor kept = (w * 2).sum();
  EXPECT_EQ(kept.item<float>(), 6);
  w.assign(w.detach() + 1);
  w.realize();
  EXPECT_EQ((w * 2).sum().item<float>(), 10);
  EXPECT_EQ(kept.item<float>(), 6);
}

TEST(Assign, AccumulatorLoop) {
  Tensor mean = Tensor::zeros(2).contiguous().realize();
  for (int i = 1; i <= 4; i++) {
    Tensor batch = Tensor::full({2}, static_cast<float>(i));
    mean.assign(mean * 0.5 + batch * 0.5);
    Tensor out = mean + 1;
    realize(out, mean);
  }
  EXPECT_NEAR(values(mean)[0], 3.0625, 1e-6);
}

TEST(Assign, PendingReadersAreComputedFirst) {
  Tensor x({1.f, 2.f}), y = x * 100, z = y + 1;
  x.assign(Tensor({5.f, 6.f}));
  x.realize();
  EXPECT_EQ(values(z), (V{101, 201}));
  EXPECT_EQ(values(y), (V{100, 200}));
}

TEST(Backward, AfterItem) {
  Tensor w({1.f, 2.f}, {.requires_grad = true}), x({3.f, 4.f});
  Tensor loss = (w * x).square().sum();
  EXPECT_EQ(loss.item<float>(), 9 + 64);
  loss.backward();
  EXPECT_EQ(values(w.grad()), (V{18, 64}));
}

TEST(Backward, RealizedLeaf) {
  Tensor x = Tensor({1.f, 2.f}) * 3, y = (x * x).sum();
  x.realize();
  y.backward();
  EXPECT_EQ(values(x.grad()), (V{6, 12}));
  Tensor a({1.f}), b = (a * 2).sum();
  if (!Tensor::training()) {
    b.realize();
    if (b.uop().is(Ops::BUFFER)) EXPECT_THROW(b.backward(), GradientError);
  }
}

TEST(Backward, OfNoElementsIsZeros) {
  // A batch of none: the sum over it has been known all along, and still depends on the weights.
  for (const auto& loss : std::vector<std::function<Tensor(const Tensor&)>>{
           [](const Tensor& w) { return w.index({Slice(0, 0)}).sum(); },
           [](const Tensor& w) { return Tensor::ones({0, 4}).matmul(w).sum(); },
           [](const Tensor& w) { return w[Tensor::empty({0}, {.dtype = dtypes::int32})].sum(); }}) {
    Tensor w = Tensor::ones({4, 3}).contiguous().realize();
    w.requires_grad_();
    loss(w).backward();
    ASSERT_TRUE(w.grad().defined());
    EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(12, 0.0f));
  }
}

TEST(Backward, TrainingLoopConverges) {
  Tensor::manual_seed(1);
  Tensor x = Tensor::randn(32, 4), target = Tensor({{1.f}, {-2.f}, {0.5f}, {3.f}}), y = x.dot(target).realize();
  Tensor w = Tensor::zeros({4, 1}, {.requires_grad = true}).realize();
  float first = 0, last = 0;
  for (int i = 0; i < 60; i++) {
    w.zero_grad();
    Tensor loss = (x.dot(w) - y).square().mean();
    loss.backward();
    w.assign(w.detach() - w.grad() * 0.1);
    realize(w, loss);
    last = loss.item<float>();
    if (i == 0) first = last;
  }
  EXPECT_LT(last, first * 1e-3f);
}

TEST(Random, KernelsGiveTheStream) {
  Context lazy{{"EAGER", 0}};
  Tensor::manual_seed(42);
  Tensor r = Tensor::rand(5), n = Tensor::randint({7}, {.low = -3, .high = 12});
  EXPECT_EQ(n.schedule().schedule->calls.size(), 1u) << "one kernel makes the numbers";
  std::vector<uint32_t> bits;
  for (float f : values(r)) bits.push_back(std::bit_cast<uint32_t>(f));
  EXPECT_EQ(bits, (std::vector<uint32_t>{0x3ec31800u, 0x3c202900u, 0x3de70410u, 0x3df10c70u, 0x3f015f64u}));
  Tensor::manual_seed(42);
  Tensor a = Tensor::rand(5), b = Tensor::rand(5);
  Tensor both = a + b;
  EXPECT_NE(values(both)[0], 2 * values(a)[0]) << "two draws in one kernel have their own keys";
}

TEST(Threads, DistinctTensorsOnDistinctThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; t++)
    threads.emplace_back([t, &wrong] {
      try {
        Tensor w = Tensor::full({8, 4}, static_cast<float>(t)).contiguous().realize();
        for (int i = 0; i < 20; i++) {
          Tensor x = Tensor::from(std::vector<float>(16, static_cast<float>(i)), {2, 8}), y = x.dot(w).relu().sum();
          if (y.item<float>() != static_cast<float>(2 * 4 * 8 * i * (t + i))) wrong++;
          w += 1;
          w.realize();
        }
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
        wrong++;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Variables, OneScheduleForAllValues) {
  Context lazy{{"EAGER", 0}};
  clear_schedule_cache();
  Tensor x = Tensor::arange(12).reshape(6, 2).to_float().contiguous().realize();
  Variable v("row", 0, 5);
  for (int k = 0; k < 6; k++) {
    BoundVariable i = v.bind(k);
    Tensor row = x.shrink({{i, i + 1}, {0, 2}}) * (i + 1).tensor();
    EXPECT_EQ(row.shape(), (Shape{1, 2}));
    EXPECT_EQ(row.schedule().cache_hit, k > 0);
    float f = static_cast<float>(k);
    EXPECT_EQ(values(row), (V{2 * f * (f + 1), (2 * f + 1) * (f + 1)}));
  }
  EXPECT_THROW(v.bind(6), ValueError);
  EXPECT_THROW(Variable("v", 2, 1), ValueError);
}

TEST(Variables, SumsOfSizesInAnyOrder) {
  BoundVariable t = Variable("t", 1, 10).bind(4), u = Variable("u", 1, 5).bind(1);
  GraphScope g;  // holds the sums
  SInt a = SInt(SInt(t).uop() + SInt(u).uop()), b = SInt(SInt(u).uop() + SInt(t).uop());
  Tensor one = Tensor::ones({1, 1});
  Tensor x = (one.expand(Shape{SInt(t), a}) + one.expand(Shape{SInt(t), b})).contiguous();
  EXPECT_EQ(x.shrink({{0, 4}, {0, 5}}).to_vector<float>(), std::vector<float>(20, 2.0f));
}
TEST(Variables, SymbolicSize) {
  Tensor x = Tensor::arange(12).reshape(6, 2).to_float().contiguous().realize();
  Variable v("rows", 1, 6);
  for (int k = 1; k <= 6; k++) {
    BoundVariable n = v.bind(k);
    Tensor part = x.shrink({{0, n}, {0, 2}});
    EXPECT_EQ((part * 2).sum().item<float>(), static_cast<float>(2 * k * (2 * k - 1)));
    EXPECT_NEAR(part.softmax(0).sum().item<float>(), 2, 1e-5);
  }
}

TEST(Eager, SameResults) {
  Tensor lazy = (Tensor::arange(6).reshape(2, 3).to_float() * 2).softmax().sum(0);
  V want = values(lazy);
  Context eager{{"EAGER", 1}};
  Tensor x = Tensor::arange(6).reshape(2, 3).to_float();
  Tensor y = (x * 2).softmax().sum(0);
  EXPECT_TRUE(y.is_realized());
  V got = values(y);
  for (size_t i = 0; i < want.size(); i++) EXPECT_NEAR(got[i], want[i], 1e-6);
  Tensor w({1.f, 2.f});
  (w * w).sum().backward();
  EXPECT_EQ(values(w.grad()), (V{2, 4}));
}

TEST(Gradient, ComputedDetachedTensorIsAConstant) {
  Tensor x({1.f, 2.f});
  x.requires_grad_();
  Tensor d = x.detach().realize();
  (d * x).sum().backward();
  EXPECT_EQ(values(x.grad()), (V{1, 2}));
  Context eager{{"EAGER", 1}};
  Tensor y({1.f, 2.f});
  y.requires_grad_();
  (y.detach() * y).sum().backward();
  EXPECT_EQ(values(y.grad()), (V{1, 2}));
}

TEST(Values, PowersOfIntegers) {
  Tensor base({-2, 3, 2, 1, 0, -1, -1, 7}), exponent({3, 2, 10, -5, 0, -3, -2, 40});
  EXPECT_EQ(base.pow(exponent).to_vector<int>(), (std::vector<int>{-8, 9, 1024, 1, 1, -1, 1, -142118463}));
  EXPECT_EQ(Tensor({3, -3}).pow(13).to_vector<int>(), (std::vector<int>{1594323, -1594323}));
  const Tensor bytes = Tensor({3, 7}).cast(dtypes::uint8);
  EXPECT_EQ(bytes.pow(bytes).to_vector<int>(), (std::vector<int>{27, 823543 & 255}));
}

TEST(Values, LogsumexpOfInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Tensor({-kInf, -kInf}).logsumexp().item<float>(), -kInf);
  EXPECT_EQ(Tensor({kInf, 1.f}).logsumexp().item<float>(), kInf);
  EXPECT_TRUE(std::isnan(Tensor({std::nanf(""), 1.f}).logsumexp().item<float>()));
}

TEST(Values, PaddingThatOverflowsIsAnError) {
  EXPECT_THROW(Tensor::ones({2, 3}).pad({{INT64_MAX, 1}, {0, 0}}), ShapeError);
}

}  // namespace
TEST(Backward, ConstantsAreLeavesOfTheirOwn) {
  Tensor x = Tensor::ones({3}), y = Tensor::ones({3});
  (x * x * y).sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(y.grad().to_vector<float>(), (std::vector<float>{1, 1, 1}));
  Tensor e = Tensor::eye(3), v({{2.0f, 0.0f, -2.0f}});
  v.matmul(e).sum().backward();
  EXPECT_EQ(e.grad().to_vector<float>(), (std::vector<float>{2, 2, 2, 0, 0, 0, -2, -2, -2}));
  EXPECT_EQ(v.grad().to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

TEST(Shapes, ABroadcastThatOverflowsIsRefusedAtOnce) {
  Tensor a = Tensor::ones({int64_t{1} << 32, 1}), b = Tensor::ones({1, int64_t{1} << 32});
  EXPECT_THROW(a + b, ShapeError);
}

}  // namespace tg
