/// \file Gradients of scalars that are made from numbers: equal literals of the expression are no part of them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using dtypes::float16, dtypes::float32;

/// Ways to make a scalar of 2.
const std::vector<std::pair<const char*, std::function<Tensor()>>>& twos() {
  static const auto* all = new std::vector<std::pair<const char*, std::function<Tensor()>>>{
      {"scalar of a type", [] { return Tensor::scalar(2.0, float32); }},
      {"scalar that adapts", [] { return tensor_detail::leaf_scalar(2.0); }},
      {"full", [] { return Tensor::full({}, 2.0); }},
      {"full with an axis", [] { return Tensor::full({1}, 2.0); }},
      {"ones times 2", [] { return Tensor::ones(1) * 2.0; }},
      {"required", [] { return Tensor(2.0).requires_grad_(); }},
      {"stored", [] { return Tensor::scalar(2.0, float32).contiguous(); }},
  };
  return *all;
}
Tensor six(const Tensor& q) { return (Tensor({3.0}) * q * 2.0).sum(); }

TEST(ScalarGradient, IsNotThatOfEqualLiterals) {
  for (const auto& [name, make] : twos()) {
    const Tensor q = make();
    EXPECT_EQ(six(q).gradient({q})[0].sum().item<double>(), 6) << name;
    const Tensor r = make();
    six(r).backward();
    ASSERT_TRUE(r.grad().defined()) << name;
    EXPECT_EQ(r.grad().sum().item<double>(), 6) << name;
    EXPECT_EQ(r.grad().dtype(), float32) << name;
  }
}
TEST(ScalarGradient, OfEqualScalarsAreTheirOwn) {
  for (const auto& [name, make] : twos()) {
    const Tensor q = make(), r = make();
    const Tensors g = (q * r * r).sum().gradient({q, r});
    EXPECT_EQ(g[0].sum().item<double>(), 4) << name;
    EXPECT_EQ(g[1].sum().item<double>(), 8) << name;
  }
}
TEST(ScalarGradient, OfSecondOrder) {
  for (const auto& [name, make] : twos()) {
    const Tensor q = make();
    const Tensor once = (q * q * q * 2.0).sum().gradient({q})[0].sum();  // 6 q^2
    EXPECT_EQ(once.item<double>(), 24) << name;
    EXPECT_EQ(once.gradient({q})[0].sum().item<double>(), 24) << name;  // 12 q
  }
}
TEST(ScalarGradient, PassesTypesAndFunctions) {
  for (const auto& [name, make] : twos()) {
    const Tensor q = make(), half = Tensor({3.0}, float16);
    EXPECT_EQ((half * q.cast(float16) * 2.0).to_float().sum().gradient({q})[0].sum().item<double>(), 6) << name;
    const Tensor y = call_function([](const Tensors& in) { return Tensors{in[0] * in[0] * 2.0}; }, {q})[0];
    EXPECT_EQ(y.sum().gradient({q})[0].sum().item<double>(), 8) << name;
    EXPECT_NEAR(Tensor({3.0}).pow(q).sum().gradient({q})[0].sum().item<double>(), 9 * std::log(3), 1e-4) << name;
  }
}
TEST(ScalarGradient, ScalarsStayPartsOfKernels) {
  if (env::EAGER) GTEST_SKIP() << "what is counted is a whole graph; EAGER=1 computes each operation by itself";
  const auto kernels = [](const Tensor& t) { return t.schedule().schedule->calls.size(); };
  const Tensor x = Tensor({1.0, 2.0, 3.0}).realize();
  for (const auto& [name, make] : twos()) {
    const Tensor q = make();
    if (q.is_realized() || q.requires_grad()) continue;
    const BoundSchedule b = (x * q + 1).schedule();
    if (std::string(name) == "stored") continue;
    ASSERT_EQ(b.schedule->calls.size(), 1u) << name;
    EXPECT_EQ((x * q + 1).to_vector<float>(), (std::vector<float>{3, 5, 7})) << name;
  }
  EXPECT_EQ(kernels(x * Tensor::scalar(2.0, float32)), 1u);
  EXPECT_EQ(Tensor::scalar(2.0, float32).item<double>(), 2);
}
TEST(ScalarGradient, ANumberHasNone) {
  const Tensor q = 2.0;
  try {
    six(q).gradient({q});
    FAIL();
  } catch (const GradientError& e) {
    EXPECT_STREQ(e.what(),
                 "[gradient] got a target of weakfloat, expected a float type: a number becomes a tensor with full({}, "
                 "number)");
  }
}
TEST(ScalarGradient, OfAPowerOfZeroIsZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto& power : {+[](const Tensor& x) { return x.pow(0); }, +[](const Tensor& x) { return x.pow(0.0); }}) {
    const Tensor x = Tensor::from(std::vector<float>{1, 0, -2, nan, inf, -inf}).requires_grad_();
    const Tensor y = power(x);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(6, 1));
    y.sum().backward();
    EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6, 0));
  }
}
TEST(ScalarGradient, OfWhatIsDroppedIsZero) {
  const Tensor x = Tensor({1.0, 2.0}).requires_grad_();
  {
    Context train{{"TRAINING", 1}};
    x.dropout(1).sum().backward();
  }
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(2, 0));
}

}  // namespace
}  // namespace tg
