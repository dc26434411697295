/// \file Random numbers equal tinygrad's (0.14) for the same seed and order of creation: bits, rand and randint
/// exactly, uniform within 1 ulp, the normal family within 1e-6. The expectations were printed by tinygrad.
#include "tinygrad/tensor/ops/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "oracle/dense.h"
#include "tinygrad/base/context.h"

namespace tg::oracle {
namespace {

std::vector<uint32_t> bits32(const Tensor& t) {
  Dense d = evaluate(t);
  EXPECT_EQ(d->dtype, dtypes::float32);
  std::vector<uint32_t> out(static_cast<size_t>(d->numel()));
  std::memcpy(out.data(), d->data.data(), out.size() * 4);
  return out;
}
template <class T> std::vector<T> raw(const Tensor& t) {
  Dense d = evaluate(t);
  std::vector<T> out(static_cast<size_t>(d->numel()));
  EXPECT_EQ(d->data.size(), out.size() * sizeof(T));
  std::memcpy(out.data(), d->data.data(), d->data.size());
  return out;
}
void expect_ulp(const Tensor& t, const std::vector<uint32_t>& want) {
  std::vector<uint32_t> got = bits32(t);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++)
    EXPECT_LE(std::abs(static_cast<int64_t>(got[i]) - static_cast<int64_t>(want[i])), 1) << i;
}
void expect_near(const Tensor& t, const std::vector<uint32_t>& want) {
  std::vector<double> got = evaluate(t)->numbers();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++) {
    double w = static_cast<double>(std::bit_cast<float>(want[i]));
    EXPECT_NEAR(got[i], w, 1e-6 * std::max(1.0, std::abs(w))) << i;
  }
}

TEST(Random, EqualsTinygrad) {
  Tensor::manual_seed(42);
  EXPECT_EQ(bits32(Tensor::rand(5)),
            (std::vector<uint32_t>{0x3ec31800u, 0x3c202900u, 0x3de70410u, 0x3df10c70u, 0x3f015f64u}));
  EXPECT_EQ(bits32(Tensor::rand(2, 3)),
            (std::vector<uint32_t>{0x3f65fa6eu, 0x3f77f590u, 0x3f18cca4u, 0x3f696494u, 0x3f7ca4c2u, 0x3ec8ac84u}));
  expect_near(Tensor::randn(2, 3), {0xbf2891acu, 0x3f615b04u, 0xbf5f1dfcu, 0xbf5a151cu, 0x3f24e7aeu, 0x3e975053u});
  EXPECT_EQ(raw<int32_t>(Tensor::randint({7}, {.low = -3, .high = 12})),
            (std::vector<int32_t>{6, -1, 4, 7, -3, -2, -2}));
  expect_ulp(Tensor::uniform({4}, {.low = 2, .high = 10}), {0x410957d0u, 0x40cb480cu, 0x40dafc64u, 0x411961d2u});
  expect_ulp(Tensor::kaiming_uniform({2, 3}),
             {0xbf8eb13bu, 0xbfa6db53u, 0x3f457f7fu, 0x3e7b9df1u, 0x3f8c7e48u, 0xbfa9e837u});
  expect_ulp(Tensor::glorot_uniform({2, 3}),
             {0xbef1fb2fu, 0xbf786aecu, 0xbe940b4au, 0x3eb66245u, 0xbecc266cu, 0x3f76f625u});
  expect_near(Tensor::normal({3}, {.mean = 10, .std = 2}), {0x40bf15fdu, 0x4110af7fu, 0x411f963bu});
  expect_ulp(Tensor::scaled_uniform({2, 2}), {0x3ecc6db8u, 0x3e68de50u, 0xbed6bb28u, 0x3eeb7980u});
  expect_near(Tensor::kaiming_normal({2, 3}),
              {0xbf659fecu, 0x3e060dd3u, 0x3e81b666u, 0xbddab852u, 0x3e7b93f4u, 0x3fee971cu});
  EXPECT_EQ(raw<uint16_t>(Tensor::rand({5}, {.dtype = dtypes::float16})),
            (std::vector<uint16_t>{0x3be8, 0x3738, 0x3934, 0x3a86, 0x3268}));
  EXPECT_EQ(raw<uint16_t>(Tensor::rand({3}, {.dtype = dtypes::bfloat16})),
            (std::vector<uint16_t>{16000, 15680, 15552}));
  EXPECT_EQ(raw<uint64_t>(Tensor::rand({3}, {.dtype = dtypes::float64})),
            (std::vector<uint64_t>{0x3fe7d95af1c136f8, 0x3fee62671c32306a, 0x3fee1690b38fb2bc}));
  EXPECT_EQ(bits32(Tensor::rand(2)), (std::vector<uint32_t>{0x3ec0fef0u, 0x3ebda8fcu}));
  Tensor::manual_seed((1ull << 32) + 7);
  EXPECT_EQ(bits32(Tensor::rand(3)), (std::vector<uint32_t>{0x3ede7618u, 0x3d419ee0u, 0x3c14d780u}));
  Tensor::manual_seed(1);
  EXPECT_EQ(raw<int32_t>(Tensor::randint({2, 3}, {.low = 0, .high = 60000})),
            (std::vector<int32_t>{3726, 29242, 56329, 49518, 55082, 2793}));
  EXPECT_EQ(raw<uint8_t>(Tensor::randint({4}, {.high = 200, .dtype = dtypes::uint8})),
            (std::vector<uint8_t>{68, 94, 62, 159}));
  Tensor::manual_seed(3);
  EXPECT_EQ(raw<int32_t>(Tensor::randperm(9)), (std::vector<int32_t>{8, 3, 7, 6, 0, 5, 1, 2, 4}));
}

TEST(Random, OrderOfCreationDefinesTheStream) {
  Tensor::manual_seed(5);
  Tensor a = Tensor::rand(4), b = Tensor::rand(4);
  std::vector<uint32_t> b_first = bits32(b), a_then = bits32(a);
  Tensor::manual_seed(5);
  EXPECT_EQ(bits32(Tensor::rand(4)), a_then);
  EXPECT_EQ(bits32(Tensor::rand(4)), b_first);
  EXPECT_EQ(bits32(a), a_then) << "an expression keeps its numbers";
}

TEST(Random, ChiSquareOfBytes) {
  Tensor::manual_seed(9);
  std::vector<int> count(256);
  const int n = 1 << 15;
  for (int32_t v : raw<int32_t>(Tensor::randint({n}, {.low = 0, .high = 256}))) {
    ASSERT_TRUE(v >= 0 && v < 256);
    count[static_cast<size_t>(v)]++;
  }
  double chi = 0;
  for (int c : count) chi += std::pow(c - n / 256.0, 2) / (n / 256.0);
  EXPECT_LT(chi, 400);  // 255 degrees of freedom: the chance to exceed 400 is below 1e-7
  EXPECT_GT(chi, 150);
}

TEST(Random, Dropout) {
  Tensor x = Tensor::ones(1000);
  EXPECT_TRUE(x.dropout(0.5).is_same(x)) << "not in training";
  Context training{{"TRAINING", 1}};
  Tensor::manual_seed(1);
  std::vector<double> v = evaluate(x.dropout(0.25))->numbers();
  int kept = 0;
  for (double d : v) {
    ASSERT_TRUE(d == 0 || std::abs(d - 1 / 0.75) < 1e-6) << d;
    kept += d != 0;
  }
  EXPECT_NEAR(kept, 750, 60);
  EXPECT_EQ(evaluate(x.dropout(1))->numbers(), std::vector<double>(1000, 0.0));
  EXPECT_THROW(x.dropout(1.5), ValueError);
}

TEST(Random, DrawsAreRecorded) {
  std::vector<rng::Draw> draws;
  rng::record(&draws);
  Tensor::rand(3);
  Tensor::randn(2, 2);
  rng::record(nullptr);
  ASSERT_EQ(draws.size(), 2u);
  EXPECT_EQ(draws[0].words, 3);
  EXPECT_EQ(draws[1].words, 8);
  EXPECT_NE(draws[0].key, draws[1].key);
}

TEST(Random, Errors) {
  EXPECT_THROW(Tensor::rand({2}, {.dtype = dtypes::int32}), DTypeError);
  EXPECT_THROW(Tensor::rand({-1}), ShapeError);
  EXPECT_THROW(Tensor::uniform({2}, {.low = 1, .high = 1}), ValueError);
  EXPECT_THROW(Tensor::randint({2}, {.low = 3, .high = 3}), ValueError);
  EXPECT_THROW(Tensor::randint({2}, {.dtype = dtypes::float32}), DTypeError);
  EXPECT_THROW(Tensor::normal({2}, {.std = -1}), ValueError);
}

}  // namespace
}  // namespace tg::oracle
