/// \file Integers that are wider than the default type: int64 where nothing says otherwise, an error where a type
/// cannot hold them, never another number.
#include <gtest/gtest.h>

#include <functional>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr int64_t kLarge = int64_t{1} << 40;
using Longs = std::vector<int64_t>;

TEST(WideIntegers, BecomeInt64) {
  EXPECT_EQ(Tensor(kLarge).item<int64_t>(), kLarge);
  EXPECT_EQ(Tensor(-kLarge).item<int64_t>(), -kLarge);
  EXPECT_EQ(Tensor(INT64_MIN).item<int64_t>(), INT64_MIN);
  EXPECT_EQ(Tensor({kLarge, int64_t{1}}).to_vector<int64_t>(), (Longs{kLarge, 1}));
  EXPECT_EQ(Tensor({kLarge, int64_t{1}}).dtype(), dtypes::int64);
  Tensor full = Tensor::full({2}, kLarge);
  EXPECT_EQ(full.dtype(), dtypes::int64);
  EXPECT_EQ(full.to_vector<int64_t>(), (Longs{kLarge, kLarge}));
  EXPECT_EQ(full.cumsum().to_vector<int64_t>(), (Longs{kLarge, 2 * kLarge}));
  EXPECT_EQ((Tensor(1 << 30) * 4).item<int64_t>(), int64_t{1} << 32);
  EXPECT_EQ((Tensor({1, 2}) > 1).where(kLarge, 0).to_vector<int64_t>(), (Longs{0, kLarge}));
  EXPECT_EQ(Tensor::arange(kLarge, kLarge + 2).to_vector<int64_t>(), (Longs{kLarge, kLarge + 1}));
  EXPECT_EQ(Tensor(7).stored_dtype(), dtypes::default_int());
  EXPECT_EQ(Tensor(kLarge).stored_dtype(), dtypes::int64);
}

TEST(WideIntegers, Uint64WhereTheTypeSaysSo) {
  const uint64_t v = uint64_t{1} << 63;
  EXPECT_EQ(Tensor::full({1}, v, {.dtype = dtypes::uint64}).to_vector<uint64_t>()[0], v);
  EXPECT_EQ(Tensor({v}, {.dtype = dtypes::uint64}).to_vector<uint64_t>()[0], v);
  EXPECT_THROW(Tensor(v).item<int64_t>(), OverflowError);
  EXPECT_THROW(Tensor({v}), OverflowError);
  EXPECT_THROW(Tensor::full({1}, v), OverflowError);
}

TEST(WideIntegers, WithTensorsOfAType) {
  Tensor x = Tensor({1, 2}).realize();
  ASSERT_EQ(x.dtype(), dtypes::int32);
  for (auto f : std::initializer_list<std::function<Tensor()>>{
           [&] { return x + kLarge; }, [&] { return kLarge - x; }, [&] { return x * kLarge; },
           [&] { return x % kLarge; }, [&] { return x & kLarge; }, [&] { return (x > 1).where(x, kLarge); },
           [&] { return x.maximum(kLarge); }, [&] { return x.clamp(kLarge, {}); },
           [&] { return x.masked_fill(x > 1, kLarge); }, [&] { return x.full_like(kLarge); },
           [&] { return x.scatter(0, Tensor({0}), kLarge); }, [&] { return x.cast(dtypes::uint8) + 300; },
           [&] { return Tensor({300}, {.dtype = dtypes::uint8}); },
           [&] { return Tensor::full({1}, kLarge, {.dtype = dtypes::int32}); }, [&] { return x.ufix(kLarge); }})
    EXPECT_THROW(f(), OverflowError);
  EXPECT_THROW(x.assign(kLarge), OverflowError);
  // Comparisons and bounds have an answer.
  EXPECT_EQ((x < kLarge).to_vector<int>(), (std::vector<int>{1, 1}));
  EXPECT_EQ((x == kLarge).to_vector<int>(), (std::vector<int>{0, 0}));
  EXPECT_EQ(x.minimum(kLarge).to_vector<int>(), (std::vector<int>{1, 2}));
  EXPECT_EQ(x.clamp(-kLarge, kLarge).to_vector<int>(), (std::vector<int>{1, 2}));
  // Wide enough, or another kind of number.
  EXPECT_EQ((x.cast(dtypes::int64) + kLarge).to_vector<int64_t>(), (Longs{kLarge + 1, kLarge + 2}));
  EXPECT_EQ((x.cast(dtypes::float32) + kLarge).to_vector<float>()[0], 0x1p40f);
  // The bits of the type, written with a sign or without, and casts wrap as in C.
  EXPECT_EQ((x.cast(dtypes::uint8) * -1).to_vector<int>(), (std::vector<int>{255, 254}));
  EXPECT_EQ((x & 0xffffffffu).to_vector<int>(), (std::vector<int>{1, 2}));
  EXPECT_EQ(Tensor(300).cast(dtypes::uint8).item<int>(), 44);
}

}  // namespace
}  // namespace tg
