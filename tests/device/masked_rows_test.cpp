/// \file Attention whose rows are masked whole: zeros, as in PyTorch, with gradients of zero.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/nn_helpers.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<float>& values_of_two_keys() {
  static const std::vector<float> v{1, 2, 3, 4};
  return v;
}
/// Two queries, of which the first sees nothing and the second the first key.
void expect_blind_row(const Tensor& mask) {
  const Tensor q = Tensor({{{{1.0, 2.0}, {3.0, 4.0}}}}).requires_grad_(), k = q.clone().requires_grad_(),
               v = Tensor::from(values_of_two_keys(), {1, 1, 2, 2}).requires_grad_();
  const Tensor y = q.scaled_dot_product_attention(k, v, mask);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 0, 1, 2}));
  const Tensors g = y.square().sum().gradient({q, k, v});
  EXPECT_EQ(g[0].to_vector<float>(), std::vector<float>(4, 0));
  EXPECT_EQ(g[1].to_vector<float>(), std::vector<float>(4, 0));
  EXPECT_EQ(g[2].to_vector<float>(), (std::vector<float>{2, 4, 0, 0}));
}
TEST(MaskedRows, ARowThatIsMaskedWholeIsZero) {
  expect_blind_row(Tensor({{false, false}, {true, false}}));
  expect_blind_row(Tensor({{-kInf, -kInf}, {0.0, -kInf}}));
  const Tensor one = Tensor::ones(1, 1, 2, 2).contiguous();
  EXPECT_TRUE(std::isnan(one.scaled_dot_product_attention(one * kInf, one, Tensor({true, true})).sum().item<double>()))
      << "scores that are no numbers stay seen";
}
TEST(MaskedRows, APaddedTextWithoutWordsIsZero) {
  const nn::MultiheadAttention layer(4, 2, {.bias = false, .batch_first = true});
  const Tensor x = test::ramp({2, 3, 4}, 0.1f, 0).requires_grad_();
  const nn::AttentionMasks masks{.key_mask = Tensor({{false, false, false}, {true, true, false}}), .causal = true};
  const auto [y, weights] = layer.with_weights(x, x, x, masks);
  const std::vector<float> values = y.to_vector<float>(), w = weights.to_vector<float>();
  for (size_t i = 0; i < 12; i++) EXPECT_EQ(values[i], 0) << i;
  for (size_t i = 0; i < 18; i++) EXPECT_EQ(w[i], 0) << i;
  for (float v : y.square().sum().gradient({x})[0].to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
}

/// Long keys, whose attention is computed in blocks: the rows in `blind` see nothing, of any kind of mask.
TEST(MaskedRows, AreZeroInBlocksAndSoAreTheirGradients) {
  const int64_t n = 1024;
  std::vector<float> added(static_cast<size_t>(n * n), 0.f);
  const auto is_blind = [](int64_t row) { return row % 5 == 0 || (row > 500 && row < 600); };
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      if (is_blind(i) || (i + j) % 7 == 3)
        added[static_cast<size_t>(i * n + j)] = -std::numeric_limits<float>::infinity();
  const Tensor floats = Tensor::from(added, Shape{n, n}).realize(), bools = (floats == 0).contiguous().realize();
  const Tensor q = test::ramp({2, n, 32}, 0.05f, 0).realize(), k = test::ramp({2, n, 32}, 0.03f, 0.1f).realize(),
               v = test::ramp({2, n, 32}, 0.1f, 0.2f).realize();
  for (const Tensor& mask : {floats, bools}) {
    const Tensor y = q.scaled_dot_product_attention(k, v, mask);
    Tensors all = y.square().sum().gradient({q, k, v});
    all.push_back(y);
    realize(all);
    for (const Tensor& t : all) ASSERT_TRUE(t.isfinite().all().item<bool>());
    const auto zero_rows = [](const Tensor& t) { return (t == 0).all({0, 2}).to_vector<bool>(); };
    const auto results = zero_rows(all[3]), gradients = zero_rows(all[0]);
    for (int64_t i = 0; i < n; i++) {
      ASSERT_EQ(results[static_cast<size_t>(i)], is_blind(i)) << i;
      ASSERT_EQ(gradients[static_cast<size_t>(i)], is_blind(i)) << i;
    }
  }
}

}  // namespace
}  // namespace tg
