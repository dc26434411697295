/// \file Gradients: finite differences, higher orders, which tensors get one, and graphs too deep for recursion.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "oracle/dense.h"
#include "oracle/op_cases.h"

namespace tg::oracle {
namespace {

std::vector<double> values(const Tensor& t) { return evaluate(t)->numbers(); }
Tensor doubles(const Shape& shape, int64_t seed, double lo = -2, double hi = 2) {
  return Tensor::from(input_values(shape.numel(), seed, lo, hi), shape);
}

/// Compares the gradient with central differences, in float64.
void check(const std::function<Tensor(const Tensors&)>& f, const std::vector<Tensor>& in, double tolerance = 1e-5) {
  Tensor out = f(in);
  Tensor seed = Tensor::from(input_values(out.numel(), 31, -1, 1), out.shape());
  Tensors grads = out.gradient(in, seed);
  const double h = 1e-5;
  for (size_t k = 0; k < in.size(); k++) {
    std::vector<double> x = values(in[k]), g = values(grads[k]);
    for (size_t i = 0; i < x.size(); i++) {
      auto at = [&](double v) {
        std::vector<double> y = x;
        y[i] = v;
        Tensors t = in;
        t[k] = Tensor::from(y, in[k].shape());
        return values((f(t) * seed).sum())[0];
      };
      EXPECT_NEAR(g[i], (at(x[i] + h) - at(x[i] - h)) / (2 * h), tolerance * std::max(1.0, std::abs(g[i])))
          << "input " << k << " element " << i;
    }
  }
}

TEST(Gradient, FiniteDifferences) {
  using T = const Tensors&;
  check([](T t) { return t[0] * t[1] + t[0] / t[1]; }, {doubles({2, 3}, 1), doubles({3}, 2, 0.5, 2)});
  check([](T t) { return (t[0].sin() * t[0].exp()).sum(1); }, {doubles({2, 3}, 3)});
  check([](T t) { return t[0].pow(t[1]); }, {doubles({5}, 4, 0.5, 2), doubles({5}, 5)});
  check([](T t) { return t[0].prod(0); }, {doubles({4, 2}, 6)});
  check(
      [](T t) {
        return t[0].conv2d(t[1], t[2], {.groups = 2, .stride = 2, .dilation = {1, 2}, .padding = {1, 0, 2, 1}});
      },
      {doubles({2, 4, 7, 8}, 7), doubles({4, 2, 3, 2}, 8), doubles({4}, 9)});
  check([](T t) { return t[0].softmax(0).log_softmax(1); }, {doubles({3, 4}, 10)});
  check([](T t) { return t[0].max_pool2d({.kernel_size = {3, 2}, .stride = 1}); }, {doubles({1, 1, 5, 4}, 11)});
  check([](T t) { return t[0].layernorm() * t[1]; }, {doubles({3, 4}, 12), doubles({4}, 13)}, 1e-4);
  Tensor rows({0, 2, 2, 1}), cols({3, 0, 0, 1});
  check([&](T t) { return t[0](rows, cols); }, {doubles({3, 4, 2}, 14)});
  check([&](T t) { return t[0](Slice(), rows.reshape(2, 2)); }, {doubles({2, 3, 2}, 15)});
  check([&](T t) { return t[0].gather(1, Tensor({{0, 0, 3}, {1, 2, 2}})); }, {doubles({2, 4}, 16)});
  check([](T t) { return t[0].cumsum(1).cumprod(0); }, {doubles({2, 3}, 17)});
  check([](T t) { return Tensor::stack({t[0], t[1]}, 1).flip(0).T().pad({1, 2}).shrink({{0, 2}, {1, 4}}); },
        {doubles({3}, 18), doubles({3}, 19)});
}

TEST(Gradient, AnyOrder) {
  Tensor x = doubles({4}, 1, 0.5, 2);
  Tensor y = (x * x * x * x).sum();
  Tensor d1 = y.gradient({x})[0], d2 = d1.sum().gradient({x})[0], d3 = d2.sum().gradient({x})[0],
         d4 = d3.sum().gradient({x})[0];
  std::vector<double> v = values(x), g2 = values(d2), g4 = values(d4);
  for (size_t i = 0; i < v.size(); i++) {
    EXPECT_NEAR(g2[i], 12 * v[i] * v[i], 1e-9);
    EXPECT_NEAR(g4[i], 24, 1e-9);
  }
  check([](const Tensors& t) { return (t[0].tanh() * t[1]).sum().gradient({t[0]})[0]; },
        {doubles({3}, 3), doubles({3}, 4)});
  check([](const Tensors& t) { return t[0].conv2d(t[1]).square().sum().gradient({t[1]})[0]; },
        {doubles({1, 1, 3, 3}, 3), doubles({1, 1, 2, 2}, 4)}, 1e-4);
}

TEST(Gradient, Edges) {
  Tensor x({1.0, 2.0, 3.0});
  EXPECT_EQ(values((x * x.detach()).sum().gradient({x})[0]), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(values((x.cast(dtypes::int32) * x).sum().gradient({x})[0]), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(values((x > 2).where(x, 0).sum().gradient({x})[0]), (std::vector<double>{0, 0, 1}));
  Tensor unrelated({5.0});
  EXPECT_EQ(values(x.sum().gradient({unrelated})[0]), (std::vector<double>{0}));
  EXPECT_EQ(values(x.sum().gradient({x, x})[1]), (std::vector<double>{1, 1, 1}));
  Tensor h = x * 2;
  EXPECT_EQ(values((h * h).sum().gradient({h})[0]), (std::vector<double>{4, 8, 12}));
  EXPECT_EQ(values(x.half().sum().gradient({x})[0]), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(x.half().sum().gradient({x})[0].dtype(), dtypes::float32);
  EXPECT_EQ(values(x.sum().gradient({x}, Tensor(3.0))[0]), (std::vector<double>{3, 3, 3}));
}

TEST(Gradient, ThroughAssign) {
  Tensor x({1.0, 2.0}), z = Tensor({5.0, 6.0, 7.0});
  Tensor w = z.detach(), old = z + 0;
  z(Slice(0, 2)).assign(x * x);
  Tensors g = (z * Tensor({1.0, 10.0, 100.0})).sum().gradient({x});
  EXPECT_EQ(values(z), (std::vector<double>{1, 4, 7}));
  EXPECT_EQ(values(w), (std::vector<double>{1, 4, 7})) << "shows the same storage";
  EXPECT_EQ(values(old), (std::vector<double>{5, 6, 7})) << "built before the assign";
  EXPECT_EQ(values(g[0]), (std::vector<double>{2, 40}));
}

TEST(Backward, EveryLiveFloatTensorWithoutRequiresGrad) {
  Tensor x({1.0, 2.0}), y({3.0, 4.0}), n({1, 2});
  Tensor h = x * y, loss = (h * n).sum();
  loss.backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{3, 8}));
  EXPECT_EQ(values(y.grad()), (std::vector<double>{1, 4}));
  EXPECT_EQ(values(h.grad()), (std::vector<double>{1, 2}));
  EXPECT_FALSE(n.grad().defined());
  loss.backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{6, 16})) << "accumulates";
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, RequiresGradIsHonoured) {
  Tensor w({1.0, 2.0}, {.requires_grad = true}), x({3.0, 4.0}), frozen({5.0, 6.0});
  frozen.requires_grad_(false);
  (w * x * frozen).sum().backward();
  EXPECT_EQ(values(w.grad()), (std::vector<double>{15, 24}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
  Tensor a({1.0}), b({2.0});
  b.requires_grad_(false);
  (a * b).sum().backward();
  EXPECT_TRUE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

TEST(Backward, ConstantLeaves) {
  // The README's example: equal constants are one node, but two leaves.
  Tensor x = Tensor::eye(3, {}, {.requires_grad = true}), y({{2.0, 0.0, -2.0}}, {.requires_grad = true});
  y.matmul(x).sum().backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{2, 2, 2, 0, 0, 0, -2, -2, -2}));
  EXPECT_EQ(values(y.grad()), (std::vector<double>{1, 1, 1}));
  Tensor a = Tensor::ones({2}, {.requires_grad = true}), b = Tensor::ones({2}, {.requires_grad = true});
  (a * b * 3).sum().backward();
  EXPECT_EQ(values(a.grad()), (std::vector<double>{3, 3}));
}

TEST(Backward, Errors) {
  Tensor x({1.0, 2.0});
  EXPECT_THROW((x * 2).backward(), GradientError);               // no scalar
  EXPECT_THROW(Tensor({1, 2}).sum().backward(), GradientError);  // integers
  EXPECT_THROW((x * 2).backward(Tensor({1.0})), ShapeError);     // seed of another shape
  EXPECT_THROW(Tensor({1, 2}).requires_grad_(), DTypeError);
  EXPECT_THROW(x.sum().gradient({Tensor({1, 2})}), GradientError);
  EXPECT_THROW(Tensor::full({}, 1.0).backward(), GradientError);  // nothing to differentiate
  try {
    (x * 2).backward();
  } catch (const GradientError& e) { EXPECT_NE(std::string(e.what()).find("sum()"), std::string::npos) << e.what(); }
}

TEST(Gradient, MillionAdds) {
  const int n = 1000000;
  auto start = std::chrono::steady_clock::now();
  Tensors leaves;
  for (int i = 0; i < 100; i++) leaves.push_back(Tensor({1.0 * i}));
  Tensor sum = leaves[0];
  for (int i = 1; i < n; i++) sum = sum + leaves[static_cast<size_t>(i % 100)];
  Tensors g = sum.sum().gradient({leaves[0], leaves[1]});
  double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_TRUE(g[1].defined());
  EXPECT_LT(s, 30);
  std::cout << "a million adds built and differentiated in " << s << " s\n";
}

}  // namespace
}  // namespace tg::oracle
