/// \file Tensors on several devices: everything they compute is what one device computes.
#include <gtest/gtest.h>

#include "several_devices.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
std::vector<std::string> devices(int n) {
  std::vector<std::string> out;
  for (int i = 0; i < n; i++) out.push_back(Device::default_name() + ":" + std::to_string(i));
  return out;
}
Tensor numbers(const Shape& shape, int from = 0) {
  return (Tensor::arange(from, from + shape.numel()).reshape(shape).to_float() * 0.25 - 1).clone().realize();
}
const std::optional<int> kAxes[] = {std::nullopt, 0, 1};

void expect_same(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); i++) ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << i;
}

class Multi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = several_devices_missing(4); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(Multi, ValuesComeBack) {
  for (int n : {2, 3, 4})
    for (std::optional<int> axis : kAxes) {
      const Tensor x = numbers({12, 24}), s = x.shard(devices(n), axis);
      EXPECT_EQ(s.shape(), x.shape());
      EXPECT_EQ(s.devices().size(), static_cast<size_t>(n));
      expect_same(s, x);
      expect_same(s.to(Device::default_name()), x);
      expect_same(s.realize().to(devices(n)[1]), x);
      expect_same(s.transpose(), x.transpose());
    }
}

TEST_F(Multi, ComputedScalars) {  // of no device until then
  Context eager{{"EAGER", 1}};
  const Tensor x = (Tensor::arange(24) % 5).cast(dtypes::float32).reshape(4, 6);
  for (std::optional<int> axis : kAxes) {
    expect_same(x.shard(devices(2), axis), x);
    expect_same((x + 1).shard(devices(2), axis) * 2, (x + 1) * 2);
  }
}

TEST_F(Multi, ElementwiseWithEveryPairOfAxes) {
  const Tensor x = numbers({4, 6}), y = numbers({4, 6}, 7), row = numbers({6}, 3);
  for (std::optional<int> a : kAxes)
    for (std::optional<int> b : kAxes) {
      const Tensor s = x.shard(devices(2), a), t = y.shard(devices(2), b);
      expect_same((s * t + 1).exp(), (x * y + 1).exp());
      expect_same((s < t).where(s, t), (x < y).where(x, y));
    }
  expect_same(x.shard(devices(2), 0) + row.shard(devices(2), 0), x + row);
}

TEST_F(Multi, Reduces) {
  const Tensor x = numbers({6, 12});
  for (int n : {2, 3})
    for (std::optional<int> axis : kAxes)
      for (const Axes& over : {Axes(), Axes(0), Axes(1)}) {
        const Tensor s = x.shard(devices(n), axis);
        expect_same(s.sum({.axis = over}), x.sum({.axis = over}));
        expect_same(s.max({.axis = over}), x.max({.axis = over}));
        expect_same(s.mean({.axis = over}), x.mean({.axis = over}));
      }
}

// Values without storage are computed where they are used: no device may read what another one stores of them.
TEST_F(Multi, ReductionsOfValuesWithoutStorage) {
  for (int n : {2, 4})
    for (const Tensor& x : {Tensor::full({64}, 2.F), Tensor::arange(64).cast(dtypes::float32), Tensor::eye(16),
                            Tensor::full({8, 8}, 3.F).contiguous()}) {
      const Tensor s = x.shard(devices(n), 0);
      expect_same(s.sum(), x.sum());
      expect_same(s.mean(), x.mean());
      expect_same(s.max(), x.max());
      expect_same(s / s.sum(), x / x.sum());
    }
}

TEST_F(Multi, MatmulWithEveryPairOfAxes) {
  const Tensor x = numbers({8, 4}), w = numbers({4, 12}, 5), want = x.matmul(w);
  for (std::optional<int> a : kAxes)
    for (std::optional<int> b : kAxes) expect_same(x.shard(devices(2), a).matmul(w.shard(devices(2), b)), want);
}

TEST_F(Multi, AllWaysToSumOverDevicesAgree) {
  for (const Shape& shape : {Shape{4, 96}, Shape{4, 7}, Shape{8, 3, 5}}) {
    const Tensor x = numbers(shape), want = x.sum({.axis = 0});
    for (int64_t ring : {0, 2})
      for (int64_t all : {0, 2}) {
        Context settings{{"RING", ring}, {"ALL2ALL", all}};
        const Tensor got = x.shard(devices(4), 0).sum({.axis = 0}).realize();
        expect_same(got, want);
        for (const std::string& d : got.devices()) expect_same(got.to(d), want);
      }
  }
}

TEST_F(Multi, Movement) {
  const Tensor x = numbers({4, 6, 8}), s = x.shard(devices(2), 1);
  expect_same(s.reshape(4, 2, 3, 8).permute({3, 1, 0, 2}), x.reshape(4, 2, 3, 8).permute({3, 1, 0, 2}));
  expect_same(s.pad({{1, 0}, {0, 0}, {2, 1}}), x.pad({{1, 0}, {0, 0}, {2, 1}}));
  expect_same(s.flip(0).shrink({{1, 3}, {0, 6}, {2, 5}}), x.flip(0).shrink({{1, 3}, {0, 6}, {2, 5}}));
  expect_same(s.shrink({{0, 4}, {3, 6}, {0, 8}}) * 2, x.shrink({{0, 4}, {3, 6}, {0, 8}}) * 2);
  expect_same(Tensor::cat({s, s}, 0), Tensor::cat({x, x}, 0));
  expect_same(Tensor::stack({s, s + 1}, 1), Tensor::stack({x, x + 1}, 1));
  expect_same(s.softmax(1), x.softmax(1));
}

TEST_F(Multi, IndexingAndEmbedding) {
  const Tensor table = numbers({10, 6}), ids = Tensor({{1, 9, 3}, {0, 2, 2}}), want = table(ids);
  for (std::optional<int> a : kAxes)
    for (std::optional<int> b : {std::optional<int>(), std::optional<int>(0)})
      expect_same(table.shard(devices(2), a)(ids.shard(devices(2), b)), want);
}

TEST_F(Multi, AssignsShardByShard) {
  for (std::optional<int> axis : kAxes) {
    const Tensor x = numbers({4, 6}), s = x.shard(devices(2), axis).realize(), before = s + 1;
    s.assign(s * 2);
    expect_same(before, x + 1);  // built before the write
    expect_same(s, x * 2);
    s.assign(Tensor(3.0)).realize();
    expect_same(s, x.full_like(3));
    expect_same(x, numbers({4, 6}));  // the source keeps its values
    const Tensor part = axis == 0 ? s(Slice(), Slice(2, 4)) : s(Slice(1, 3));
    part.assign(part + 1).realize();
    Tensor want = x.full_like(3).clone();
    const Tensor same = axis == 0 ? want(Slice(), Slice(2, 4)) : want(Slice(1, 3));
    same.assign(same + 1);
    expect_same(s, want);
  }
}

TEST_F(Multi, SetItem) {
  for (std::optional<int> axis : {std::optional<int>(), std::optional<int>(0)}) {
    const Tensor x = Tensor::arange(16).clone().realize(), s = x.shard(devices(4), axis).realize();
    s.setitem({5}, Tensor(99));
    x.setitem({5}, Tensor(99));
    s.setitem({Slice(2, 9)}, Tensor(7));
    x.setitem({Slice(2, 9)}, Tensor(7));
    s.setitem({Slice(None, None, 4)}, Tensor(1));
    x.setitem({Slice(None, None, 4)}, Tensor(1));
    EXPECT_EQ(s.to_vector<int>(), x.to_vector<int>());
    EXPECT_EQ(s.devices().size(), 4u);
  }
}

TEST_F(Multi, Gradients) {
  const Tensor x = numbers({4, 6}), w = numbers({6, 3}, 2);
  x.requires_grad_();
  w.requires_grad_();
  (x.matmul(w).relu() * 2).sum().backward();
  for (std::optional<int> a : kAxes)
    for (std::optional<int> b : kAxes) {
      if (b == 1) continue;  // 3 columns
      const Tensor s = x.detach().shard(devices(2), a).requires_grad_(),
                   v = w.detach().shard(devices(2), b).requires_grad_();
      (s.matmul(v).relu() * 2).sum().backward();
      expect_same(s.grad(), x.grad());
      expect_same(v.grad(), w.grad());
    }
  // A view of whole tensors, whose gradient arrives in slices.
  const Tensor v = numbers({4, 4}).requires_grad_(), factor = numbers({4, 4}, 3);
  const auto views = [](const Tensor& t) {
    return t.reshape(2, 8).flip(0).reshape(4, 4).pad({{1, 0}, {0, 0}}).shrink({{0, 4}, {0, 4}});
  };
  (views(v) * factor).square().sum().backward();
  for (int n : {2, 4}) {
    const Tensor s = v.detach().shard(devices(n)).requires_grad_();
    (views(s) * factor.shard(devices(n), 0)).square().sum().backward();
    expect_same(s.grad(), v.grad());
  }
  // Through the sharding to the tensor on one device.
  const Tensor y = numbers({4, 6}).requires_grad_();
  (y.shard(devices(2), 0) * 3).sum().backward();
  EXPECT_EQ(y.grad().device(), y.device());
  expect_same(y.grad(), y.full_like(3));
}

/// Two steps of a two-layer network; data and first layer as `data` and `weight` say.
Tensors trained(std::optional<int> data, std::optional<int> weight, bool several,
                const std::function<std::unique_ptr<nn::Optimizer>(const Tensors&)>& make) {
  Context training{{"TRAINING", 1}};
  Tensors p{numbers({6, 8}) * 0.1, numbers({8}, 3) * 0.1, numbers({8, 2}, 1) * 0.1};
  for (Tensor& t : p) t = t.clone().realize();
  if (several) {
    p[0].shard_(devices(2), weight);
    p[1].shard_(devices(2));
    p[2].shard_(devices(2));
  }
  for (const Tensor& t : p) t.requires_grad_();
  auto optimizer = make(p);
  for (int step = 0; step < 2; step++) {
    Tensor x = numbers({4, 6}, step), y = numbers({4, 2}, 2 * step);
    if (several) {
      x.shard_(devices(2), data);
      y.shard_(devices(2), data);
    }
    optimizer->zero_grad();
    const Tensor loss = ((x.matmul(p[0]) + p[1]).relu().matmul(p[2]) - y).square().mean();
    loss.backward();
    optimizer->step();
    p.push_back(loss);
  }
  return p;
}

TEST_F(Multi, TrainingIsThatOfOneDevice) {
  const auto sgd = [](const Tensors& p) -> std::unique_ptr<nn::Optimizer> {
    return std::make_unique<nn::SGD>(p, nn::SgdOptions{.lr = 0.1, .momentum = 0.9});
  };
  const auto adam = [](const Tensors& p) -> std::unique_ptr<nn::Optimizer> { return std::make_unique<nn::Adam>(p); };
  for (const std::function<std::unique_ptr<nn::Optimizer>(const Tensors&)>& make :
       {std::function<std::unique_ptr<nn::Optimizer>(const Tensors&)>(sgd),
        std::function<std::unique_ptr<nn::Optimizer>(const Tensors&)>(adam)}) {
    const Tensors want = trained({}, {}, false, make);
    for (auto [data, weight] : {std::pair<std::optional<int>, std::optional<int>>{0, {}}, {{}, 1}, {{}, 0}, {0, 1}}) {
      const Tensors got = trained(data, weight, true, make);
      for (size_t i = 0; i < want.size(); i++) expect_same(got[i], want[i], 1e-4);
    }
  }
}

TEST_F(Multi, CreationAndRandomNumbers) {
  const std::string both = device_list(devices(2));
  EXPECT_EQ(Tensor::full({4}, 2.5, {.device = both}).device(), Device::canonical(both));
  expect_same(Tensor::arange(0, 6, 1, {.device = both}) + numbers({6}).shard(devices(2), 0),
              Tensor::arange(6) + numbers({6}));
  const Tensor x = numbers({4, 6}).shard(devices(2), 1);
  for (const Tensor& t : {x.full_like(1), x.zeros_like(), x.empty_like(), x.rand_like(), x.randn_like(), x.clone()}) {
    EXPECT_EQ(t.device(), x.device());
    EXPECT_EQ(t.shard_axis(), 1);
    EXPECT_EQ(t.shape(), x.shape());
    t.realize();
  }
  const Tensor r = x.rand_like(), kept = r.to(Device::default_name());
  expect_same(r, kept);
  Context training{{"TRAINING", 1}};
  const double rest = Tensor::ones(512).shard(devices(2), 0).dropout(0.5).sum().item<double>() / 2;
  EXPECT_GT(rest, 192);
  EXPECT_LT(rest, 320);
}

TEST_F(Multi, Jit) {
  const Tensor state = numbers({4}).shard(devices(2), 0).realize();
  auto f = jit([&](const Tensor& x, const Tensor& w) {
    state.assign(state + x.sum()).realize();
    return (x * w).contiguous();
  });
  const Tensor w = numbers({4, 2}, 3);
  Tensors results;
  double sum = 0;
  for (int i = 0; i < 5; i++) {
    const Tensor x = numbers({4, 2}, i);
    results.push_back(f(x.shard(devices(2), 0).realize(), w.shard(devices(2)).realize()));
    sum += x.sum().item<double>();
  }
  EXPECT_TRUE(f.core().captured());
  for (int i = 0; i < 5; i++)
    expect_same(results[static_cast<size_t>(i)], numbers({4, 2}, i) * w);  // earlier results stay
  EXPECT_EQ(results[4].shard_axis(), 0);
  expect_same(state, numbers({4}) + sum, 1e-4);
}

TEST_F(Multi, GradientsLeftByACapturedFunction) {
  for (std::optional<int> axis : kAxes)
    for (bool clear_inside : {true, false}) {
      const Tensor one = numbers({4, 6}).requires_grad_(),
                   several = numbers({4, 6}).shard(devices(2), axis).realize().requires_grad_();
      auto loss = [](const Tensor& x, const Tensor& w) { return x.matmul(w).square().sum(); };
      auto f = jit([&](const Tensor& x) {
        if (clear_inside) several.zero_grad();
        Tensor l = loss(x, several);
        l.backward();
        return l;
      });
      for (int i = 0; i < 5; i++) {
        const Tensor x = numbers({2, 4}, i);
        for (const Tensor& w : {one, several}) w.zero_grad();
        loss(x, one).backward();
        expect_same(f(x.shard(devices(2)).realize()), loss(x, one));
        expect_same(several.grad(), one.grad());
        expect_same(several.grad() * 2, one.grad() * 2);
      }
      EXPECT_TRUE(f.core().captured());
    }
}

TEST_F(Multi, GradientsOfArgumentsThatNobodyReadsAreLeftOut) {
  int64_t kernels[2] = {};
  for (bool read : {false, true}) {
    const Tensor w = numbers({6}).shard(devices(2)).realize();
    auto f = jit([&](const Tensor& x) {
      w.zero_grad();
      const Tensor loss = (x * w).square().sum();
      loss.backward();
      w.assign(w - w.grad() * 0.5);
      return loss.realize();
    });
    const Tensor x = numbers({4, 6}).shard(devices(2), 0).realize();
    for (int i = 0; i < 4; i++) {
      x.zero_grad();
      w.assign(numbers({6}).shard(devices(2))).realize();
      const int64_t before = GlobalCounters::kernels;
      f(x);
      kernels[read] = GlobalCounters::kernels - before;
      const Tensor one = numbers({4, 6});
      expect_same(w, numbers({6}) - one.square().sum(0) * numbers({6}));
      if (read) expect_same(x.grad(), one * numbers({6}).square() * 2);
    }
    if (env::JIT && !read) EXPECT_THROW(x.grad(), GradientError);
  }
  if (env::JIT && !env::EAGER) EXPECT_LT(kernels[0], kernels[1]);
}

TEST_F(Multi, StatisticsInACapturedFunction) {
  Context training{{"TRAINING", 1}};
  nn::BatchNorm one(2), several(2);
  for (const Tensor& t :
       {several.weight, several.bias, several.running_mean, several.running_var, several.num_batches_tracked})
    t.shard_(devices(2));
  auto f = jit([&](const Tensor& x) { return several(x).contiguous(); });
  for (int i = 0; i < 4; i++) {
    const Tensor x = numbers({4, 2, 3, 3}, 7 * i);
    expect_same(f(x.shard(devices(2), 0).realize()), one(x), 1e-4);
  }
  expect_same(several.running_mean, one.running_mean, 1e-4);
  expect_same(several.running_var, one.running_var, 1e-4);
}

TEST_F(Multi, StateDict) {
  const nn::Linear source(4, 6), target(4, 6), back(4, 6);
  target.weight.shard_(devices(2), 0);
  target.bias.shard_(devices(2));
  nn::load_state_dict(target, nn::get_state_dict(source));
  EXPECT_EQ(target.weight.shard_axis(), 0);
  EXPECT_EQ(target.bias.shard_axis(), std::nullopt);
  EXPECT_EQ(target.bias.devices().size(), 2u);
  expect_same(target.weight, source.weight);
  nn::load_state_dict(back, nn::get_state_dict(target));
  EXPECT_EQ(back.weight.device(), source.weight.device());
  expect_same(back.weight, source.weight);
}

TEST_F(Multi, SymbolicSizes) {
  const Tensor x = numbers({6, 4}), s = x.shard(devices(2), 1);
  for (int64_t n : {2, 5}) {
    const BoundVariable rows = Variable("rows", 1, 6).bind(n);
    expect_same(s(Slice(0, rows)).sum({.axis = 1}).realize()(Slice(0, n)).to(Device::default_name()),
                x(Slice(0, n)).sum({.axis = 1}));
  }
}

}  // namespace
}  // namespace tg
