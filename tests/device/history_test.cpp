/// \file Histories of computed tensors: what reading, realizing and writing leaves to gradients.
#include <gtest/gtest.h>

#include "tests/error/expect_error.h"
#include "tinygrad/base/env.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tinygrad.h"

using namespace tg;
using Floats = std::vector<float>;

namespace {
Floats floats(const Tensor& t) { return t.flatten().to_vector<float>(); }
Tensor plain(Floats v) { return Tensor(std::move(v)); }
}  // namespace

TEST(History, ReadingKeepsIt) {
  using Read = std::function<void(const Tensor&)>;
  const Read reads[] = {[](const Tensor& t) { t.to_vector<float>(); }, [](const Tensor& t) { t.data<float>(); },
                        [](const Tensor& t) { t.sum().item<float>(); },
                        [](const Tensor& t) {
                          std::ostringstream os;
                          os << t;
                        }};
  for (const Read& read : reads) {
    Tensor x = plain({1, 2, 3}), y = x * x;
    read(y);
    y.sum().backward();
    EXPECT_EQ(floats(x.grad()), (Floats{2, 4, 6}));
  }
}

TEST(History, OfEveryPlaceOnTheWay) {
  Tensor x = plain({1, 2, 3}), a = x * 2, b = a + 1, c = b * b;
  for (const Tensor* t : {&a, &b, &c}) floats(*t);
  Tensor loss = c.sum();
  loss.item<float>();
  EXPECT_EQ(floats(loss.gradient({x})[0]), (Floats{12, 20, 28}));
  EXPECT_EQ(floats(loss.gradient({b})[0]), (Floats{6, 10, 14}));
}

TEST(History, SecondDerivativeAfterReadingTheFirst) {
  Tensor x = plain({1, 2, 3}), first = (x * x * x).sum().gradient({x})[0];
  EXPECT_EQ(floats(first), (Floats{3, 12, 27}));
  EXPECT_EQ(floats(first.sum().gradient({x})[0]), (Floats{6, 12, 18}));
}

TEST(History, BothWaysCountWhenOneWasRead) {
  Tensor w = plain({1, 2}), b = plain({3, 4}), h = w + b;
  floats(h);
  (h.sum() + b.sum()).backward();
  EXPECT_EQ(floats(w.grad()), (Floats{1, 1}));
  EXPECT_EQ(floats(b.grad()), (Floats{2, 2}));
}

TEST(History, OfACopyThatWasRead) {
  Tensor x = plain({1, 2, 3}), y = (x * 2).clone();
  EXPECT_EQ(floats(y), (Floats{2, 4, 6}));
  (y * y).sum().backward();
  EXPECT_EQ(floats(x.grad()), (Floats{8, 16, 24}));
}

TEST(History, OfAWriteIntoNewStorageThatWasRead) {
  if (env::EAGER) GTEST_SKIP() << "EAGER=1 realizes after every method: writes into storage are leaves";
  Tensor w = plain({1, 2}), out = Tensor::zeros(3).contiguous();
  out.at(Slice(1, 3)) = w * 2;
  EXPECT_EQ(floats(out), (Floats{0, 2, 4}));
  (out * out).sum().backward();
  EXPECT_EQ(floats(w.grad()), (Floats{8, 16}));
}

TEST(History, OfIndexedWritesIntoACopyThatWasRead) {
  for (const bool by_tensor : {false, true})
    for (const bool marked : {false, true}) {
      const Tensor x = plain({1, 2, 3}), v = plain({5});
      if (marked) {
        x.requires_grad_();
        v.requires_grad_();
      }
      const Tensor y = x.clone();
      y.setitem({by_tensor ? Index(Tensor({1})) : Index(Slice(1, 2))}, v * 2);
      if (marked) y.realize();
      EXPECT_EQ(floats(y), (Floats{1, 10, 3}));
      const Tensors g = (y * y).sum().gradient({x, v});
      EXPECT_EQ(floats(g[0]), (Floats{2, 0, 6})) << by_tensor << marked;
      EXPECT_EQ(floats(g[1]), (Floats{40})) << by_tensor << marked;
    }
}

TEST(History, OfAWriteIntoAPartOfOldStorageIsAnErrorOnceComputed) {
  Tensor w = plain({1, 2}), out = Tensor::zeros(3).contiguous().realize();
  out(Slice(1, 3)).assign(w * 2).realize();
  EXPECT_EQ(floats(out), (Floats{0, 2, 4}));
  expect<GradientError>([&] { (out * out).sum().gradient({w}); }, "gradient", "a write into a part of it");
}

TEST(History, OfAValueThatWasReadAndThenWrittenTo) {
  Tensor x = plain({1, 2, 3}), y = x * 2;
  floats(y);
  y.at(0) = 7;
  EXPECT_EQ(floats(y), (Floats{7, 4, 6}));
  (y * y).sum().backward();
  EXPECT_EQ(floats(x.grad()), (Floats{0, 16, 24}));
}

TEST(History, WritesThroughViewsOfAValueThatWasReadAreSeen) {
  Tensor x = plain({1, 2, 3, 4}), y = (x * 2).reshape(2, 2);
  floats(y);
  y(1).at(0) = 7;
  EXPECT_EQ(floats(y), (Floats{2, 4, 7, 8}));
  const Tensor t = y.T();
  y.at(0, 1) = 9;
  EXPECT_EQ(floats(t), (Floats{2, 7, 9, 8}));
}

TEST(History, RealizeOfALossKeepsIt) {
  Tensor x = plain({1, 2, 3}), loss = (x * x).sum().realize();
  loss.backward();
  EXPECT_EQ(floats(x.grad()), (Floats{2, 4, 6}));
}

TEST(History, RealizeMakesALeafUnlessWhatItIsMadeOfIsMarked) {
  if (env::EAGER) GTEST_SKIP() << "EAGER=1 realizes unasked: no history is dropped by it";
  Tensor x = plain({1, 2, 3}), y = (x * x).realize();
  y.sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(floats(y.grad()), (Floats{1, 1, 1}));
  Tensor p = plain({1, 2, 3}).requires_grad_(), q = (p * p).realize();
  q.sum().backward();
  EXPECT_EQ(floats(p.grad()), (Floats{2, 4, 6}));
}

TEST(History, OfOldContentsIsComputedAgain) {
  // h goes into the gradient of h * h, and is overwritten between the two passes.
  Tensor x = plain({1, 2, 3}).requires_grad_(), h = x * 2, y = h * h;
  realize(Tensors{h, y});
  h.assign(h + 100).realize();
  y.sum().backward();
  EXPECT_EQ(floats(x.grad()), (Floats{8, 16, 24}));
}

TEST(History, LeavesAreFoundAfterTheyWereOverwritten) {
  for (int steps : {1, 3}) {
    Tensor w = plain({1, 2, 3}).realize(), linear = w * 2, square = w * w;
    realize(Tensors{linear, square});
    EXPECT_EQ(floats(linear), (Floats{2, 4, 6}));
    Tensor kept = w * 3, needs = w * w * w;
    floats(kept);
    floats(needs);
    for (int i = 0; i < steps; i++) w.assign(w - 1).realize();
    EXPECT_EQ(floats(kept.sum().gradient({w})[0]), (Floats{3, 3, 3}));
    kept.sum().backward();
    EXPECT_EQ(floats(w.grad()), (Floats{3, 3, 3}));
    // d(w^3) needs the old w, which is gone: as in PyTorch.
    expect<ValueError>([&] { floats(needs.sum().gradient({w})[0]); }, "realize", "overwritten in place");
  }
}

TEST(History, AWriteThatHasRunIsALeaf) {
  // By hand: w - 0.1 * d(w^2 b + b), in turn for both; the loss is read before its gradient is taken, the writes run
  // with the next loss.
  Tensor w = plain({2}).realize(), b = plain({1}).realize();
  float pw = 2, pb = 1;
  for (int i = 0; i < 4; i++) {
    Tensor loss = (w * w * b + b).sum();
    EXPECT_NEAR(loss.item<float>(), pw * pw * pb + pb, 1e-5);
    const Tensors g = loss.gradient({w, b});
    w.assign(w - g[0] * 0.1f);
    b.assign(b - g[1] * 0.1f);
    const float gw = 2 * pw * pb, gb = pw * pw + 1;
    pw -= 0.1f * gw;
    pb -= 0.1f * gb;
  }
  EXPECT_NEAR(w.item<float>(), pw, 1e-5);
  EXPECT_NEAR(b.item<float>(), pb, 1e-5);
}

TEST(History, EqualGradientsGrowByThemselves) {
  Tensor a = plain({1, 2}), b = plain({3, 4});
  for (float k : {1.f, 2.f, 3.f}) {
    ((a + b) * plain({1, k})).sum().backward();
    floats(a.grad());
  }
  EXPECT_EQ(floats(a.grad()), (Floats{3, 6}));
  EXPECT_EQ(floats(b.grad()), (Floats{3, 6}));
}

TEST(History, GradientsThatArePaddedViewsGrow) {
  Tensor w = plain({1, 2, 3}), h = w * 2;
  for (int i = 0; i < 2; i++) {
    h(Slice(1, None)).sum().backward();
    floats(h.grad());
  }
  EXPECT_EQ(floats(w.grad()), (Floats{0, 4, 4}));
  EXPECT_EQ(floats(h.grad()), (Floats{0, 2, 2}));
}

TEST(History, NumbersAreParameters) {
  nn::Training train;
  Tensor w(1.0);
  nn::SGD opt({w}, {.lr = 0.25});
  for (int i = 0; i < 2; i++) {
    opt.zero_grad();
    (plain({1, 3}) * w).sum().backward();
    opt.step();
  }
  EXPECT_EQ(w.dtype(), dtypes::float32);
  EXPECT_FLOAT_EQ(w.item<float>(), -1.f);
}

TEST(History, LoadedLayersKeepGradients) {
  nn::Linear l(2, 2), other(2, 2);
  nn::load_state_dict(nn::get_state_dict(l), nn::get_state_dict(other));
  Tensor h = l(Tensor({{1.f, 2.f}}));
  h.realize();
  (h.sum() + l.bias.sum()).backward();
  EXPECT_EQ(floats(l.bias.grad()), (Floats{2, 2}));
  EXPECT_EQ(floats(l.weight.grad()), (Floats{1, 2, 1, 2}));
}

TEST(History, ReplacedParametersStayParameters) {
  Tensor p = plain({1, 2}).requires_grad_();
  p.replace(plain({3, 4}));
  Tensor y = (p * p).realize();
  y.sum().backward();
  EXPECT_EQ(floats(p.grad()), (Floats{6, 8}));
}

TEST(History, DroppedToBoundMemoryIsAnError) {
  if (env::EAGER) GTEST_SKIP() << "EAGER=1 realizes after every method";
  Tensor w = plain({1, 2}), x = w * 1, other = plain({1, 1});
  Context few{{"PENDING_NODES", 200}};
  for (int i = 0; i < 20000; i++) {  // many: other tests may have left nodes, by which looks are rarer
    x = x * 0.5f + w;
    floats(x);
  }
  expect<GradientError>([&] { x.sum().gradient({w}); }, "gradient", "PENDING_NODES");
  EXPECT_EQ(floats((x * other).sum().gradient({other})[0]).size(), 2u);
  x.sum().backward();
  expect<GradientError>([&] { w.grad(); }, "grad", "history was dropped");
  w.zero_grad();
  EXPECT_FALSE(w.grad().defined());
}

TEST(History, MarkedTensorsAreKeptWhateverItTakes) {
  if (env::EAGER) GTEST_SKIP() << "EAGER=1 realizes after every method";
  Tensor w = plain({1, 2}).requires_grad_(), x = w * 1;
  Context few{{"PENDING_NODES", 200}};
  for (int i = 0; i < 100; i++) {
    x = x * 0.5f + w;
    floats(x);
  }
  EXPECT_NEAR(floats(x.sum().gradient({w})[0])[0], 2.f, 1e-6);
}

TEST(History, TensorsOutsideOfTheOptimizerTrainOn) {
  // A marked and a plain parameter, and a third tensor that gets gradients but is in no optimizer.
  nn::Training train;
  Tensor w = Tensor::ones(4).realize(), b = Tensor::zeros(4).realize(),
         m = Tensor::full({4, 4}, 0.5f).contiguous().is_param_().realize();
  nn::SGD opt({b, m}, {.lr = 0.1});
  Floats losses;
  for (int i = 0; i < 3; i++) {
    opt.zero_grad();
    w.zero_grad();
    Tensor loss = (Tensor::ones(2, 4).matmul(m) * w + b).square().mean();
    loss.backward();
    EXPECT_EQ(floats(w.grad()).size(), 4u);
    losses.push_back(loss.item<float>());
    opt.step();
  }
  // By hand: y = 4 m + b of equal elements, d/db = y / 2, d/dm = y / 2 in each of the 16.
  EXPECT_FLOAT_EQ(losses[0], 4.f);
  EXPECT_FLOAT_EQ(losses[1], 2.25f);
  EXPECT_FLOAT_EQ(losses[2], 1.265625f);
}
