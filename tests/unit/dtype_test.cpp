/// \file DTypes: names, the whole promotion table, limits, and every code of every small float against values derived
/// elsewhere.
#include "tinygrad/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {

#include "fp8_values.inc"

const std::vector<DType> kAll = {dtypes::bool_,       dtypes::weakint, dtypes::int8,        dtypes::uint8,
                                 dtypes::int16,       dtypes::uint16,  dtypes::int32,       dtypes::uint32,
                                 dtypes::int64,       dtypes::uint64,  dtypes::weakfloat,   dtypes::fp8e4m3,
                                 dtypes::fp8e4m3fnuz, dtypes::fp8e5m2, dtypes::fp8e5m2fnuz, dtypes::float16,
                                 dtypes::bfloat16,    dtypes::float32, dtypes::float64};
const std::vector<DType> kFp8 = {dtypes::fp8e4m3, dtypes::fp8e4m3fnuz, dtypes::fp8e5m2, dtypes::fp8e5m2fnuz};

TEST(DType, NamesRoundTrip) {
  EXPECT_EQ(kAll.size(), static_cast<size_t>(DTypeId::kCount) - 1);
  for (DType d : kAll) EXPECT_EQ(dtypes::from_name(d.name()), d) << d;
  EXPECT_EQ(dtypes::from_name("half"), dtypes::float16);
  EXPECT_EQ(dtypes::from_name("HALF"), dtypes::float16);
  EXPECT_EQ(dtypes::from_name("double"), dtypes::float64);
  EXPECT_EQ(dtypes::from_name("uchar"), dtypes::uint8);
  EXPECT_EQ(dtypes::from_name("long"), dtypes::int64);
  EXPECT_EQ(str(dtypes::bfloat16), "bfloat16");
  try {
    dtypes::from_name("float33");
    FAIL() << "no error";
  } catch (const DTypeError& e) {
    EXPECT_NE(std::string(e.what()).find("[dtype] got 'float33', expected one of"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("bfloat16"), std::string::npos) << e.what();
  }
}

TEST(DType, Sizes) {
  EXPECT_EQ(dtypes::bool_.itemsize(), 1);
  EXPECT_EQ(dtypes::bool_.bitsize(), 1);
  EXPECT_EQ(dtypes::fp8e5m2.itemsize(), 1);
  EXPECT_EQ(dtypes::bfloat16.itemsize(), 2);
  EXPECT_EQ(dtypes::uint64.itemsize(), 8);
  EXPECT_EQ(dtypes::weakint.bitsize(), 800);
  EXPECT_EQ(dtypes::void_.bitsize(), 0);
  EXPECT_THROW(dtypes::weakfloat.itemsize(), DTypeError);
  EXPECT_THROW(dtypes::void_.itemsize(), DTypeError);
}

TEST(DType, Kinds) {
  for (DType d : kAll) {
    EXPECT_EQ(int{d.is_bool()} + int{d.is_int()} + int{d.is_float()}, 1) << d;
    EXPECT_EQ(d.is_unsigned(), d.name().starts_with("uint")) << d;
    EXPECT_EQ(d.is_fp8(), d.name().starts_with("fp8")) << d;
    EXPECT_EQ(d.is_weak(), d.name().starts_with("weak")) << d;
  }
}

// Row: left type, column: right type, in the order of kAll; letter n is the n-th of kAll. Printed by tinygrad's
// least_upper_dtype.
constexpr const char* kUpper[] = {
    "abcdefghijklmnopqrs",  // bool
    "bbcdefghijklmnopqrs",  // weakint
    "ccceeggiikklmnopqrs",  // int8
    "ddedefghijklmnopqrs",  // uint8
    "eeeeeggiikklmnopqrs",  // int16
    "ffgfgfghijklmnopqrs",  // uint16
    "gggggggiikklmnopqrs",  // int32
    "hhihihihijklmnopqrs",  // uint32
    "iiiiiiiiikklmnopqrs",  // int64
    "jjkjkjkjkjklmnopqrs",  // uint64
    "kkkkkkkkkkklmnopqrs",  // weakfloat
    "llllllllllllppppqrs",  // fp8e4m3
    "mmmmmmmmmmmpmpppqrs",  // fp8e4m3fnuz
    "nnnnnnnnnnnppnppqrs",  // fp8e5m2
    "ooooooooooopppopqrs",  // fp8e5m2fnuz
    "pppppppppppppppprrs",  // float16
    "qqqqqqqqqqqqqqqrqrs",  // bfloat16
    "rrrrrrrrrrrrrrrrrrs",  // float32
    "sssssssssssssssssss",  // float64
};

TEST(DType, PromotionTable) {
  for (size_t i = 0; i < kAll.size(); i++) {
    for (size_t j = 0; j < kAll.size(); j++)
      EXPECT_EQ(least_upper_dtype(kAll[i], kAll[j]), kAll[kUpper[i][j] - 'a']) << kAll[i] << " " << kAll[j];
    EXPECT_THROW(least_upper_dtype(kAll[i], dtypes::void_), DTypeError);
  }
}

TEST(DType, TheCommonTypeOfSeveralHasNoOrder) {
  const DType a = dtypes::fp8e4m3, b = dtypes::fp8e5m2, c = dtypes::bfloat16;
  for (const std::vector<DType>& three : {std::vector{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}})
    EXPECT_EQ(least_upper_dtype(three), dtypes::bfloat16) << three[0] << " " << three[1];
  EXPECT_EQ(least_upper_dtype(least_upper_dtype(a, b), c), dtypes::float32) << "two by two";
  EXPECT_EQ(least_upper_dtype(std::vector{a}), a);
  EXPECT_THROW(least_upper_dtype(std::vector{a, b, dtypes::void_}), DTypeError);
}

TEST(DType, DefaultsFollowTheEnvironment) {
  EXPECT_EQ(dtypes::default_float(), dtypes::float32);
  EXPECT_EQ(strong_dtype(dtypes::weakint), dtypes::int32);
  EXPECT_EQ(strong_dtype(dtypes::weakfloat), dtypes::float32);
  EXPECT_EQ(strong_dtype(dtypes::int8), dtypes::int8);
  EXPECT_EQ(least_upper_float(dtypes::int64), dtypes::float32);
  EXPECT_EQ(least_upper_float(dtypes::float16), dtypes::float16);
  EXPECT_EQ(least_upper_float(dtypes::weakint), dtypes::weakfloat);
  {
    Context ctx{{"DEFAULT_FLOAT", "HALF"}, {"DEFAULT_INT", "int64"}};
    EXPECT_EQ(dtypes::default_float(), dtypes::float16);
    EXPECT_EQ(strong_dtype(dtypes::weakint), dtypes::int64);
    EXPECT_EQ(least_upper_float(dtypes::bool_), dtypes::float16);
  }
  EXPECT_EQ(dtypes::default_float(), dtypes::float32);
  Context ints{{"DEFAULT_FLOAT", "int32"}, {"DEFAULT_INT", "nonsense"}};
  EXPECT_THROW(dtypes::default_float(), ValueError);
  EXPECT_THROW(dtypes::default_int(), DTypeError);
}

TEST(DType, SumAccumulates) {
  EXPECT_EQ(sum_acc_dtype(dtypes::uint8), dtypes::uint32);
  EXPECT_EQ(sum_acc_dtype(dtypes::uint64), dtypes::uint64);
  EXPECT_EQ(sum_acc_dtype(dtypes::bool_), dtypes::int32);
  EXPECT_EQ(sum_acc_dtype(dtypes::int64), dtypes::int64);
  EXPECT_EQ(sum_acc_dtype(dtypes::float16), dtypes::float32);
  EXPECT_EQ(sum_acc_dtype(dtypes::float64), dtypes::float64);
  Context ctx{{"SUM_DTYPE", "half"}};
  EXPECT_EQ(sum_acc_dtype(dtypes::float16), dtypes::float16);
  EXPECT_EQ(sum_acc_dtype(dtypes::fp8e4m3), dtypes::float16);
}

TEST(DType, IntegerLimits) {
  EXPECT_EQ(int_min(dtypes::int8), -128);
  EXPECT_EQ(int_max(dtypes::int8), 127);
  EXPECT_EQ(int_max(dtypes::uint16), 65535);
  EXPECT_TRUE(int_min(dtypes::int64) == std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(int_max(dtypes::uint64) == std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(int_max(dtypes::bool_), 1);
  EXPECT_TRUE(int_max(dtypes::weakint) == int128{1} << 126 && int_min(dtypes::weakint) == -(int128{1} << 126));
  EXPECT_THROW(int_max(dtypes::float32), DTypeError);
  EXPECT_EQ(highest_float(dtypes::float16), std::numeric_limits<double>::infinity());
  EXPECT_EQ(lowest_float(dtypes::weakfloat), -std::numeric_limits<double>::infinity());
  EXPECT_THROW(lowest_float(dtypes::int32), DTypeError);
  EXPECT_THROW(finfo(dtypes::weakfloat), DTypeError);
  EXPECT_THROW(finfo(dtypes::int8), DTypeError);
  EXPECT_EQ(finfo(dtypes::bfloat16).exponent, 8);
  EXPECT_EQ(finfo(dtypes::fp8e4m3).mantissa, 3);
}

TEST(DType, TruncateIntWraps) {
  EXPECT_EQ(truncate_int(300, dtypes::uint8), 44);
  EXPECT_EQ(truncate_int(200, dtypes::int8), -56);
  EXPECT_EQ(truncate_int(-1, dtypes::uint32), 4294967295);
  EXPECT_TRUE(truncate_int(int128{1} << 63, dtypes::int64) == std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(truncate_int(-1, dtypes::uint64) == std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(truncate_int(17, dtypes::bool_), 1);
  EXPECT_TRUE(truncate_int(int128{1} << 100, dtypes::weakint) == int128{1} << 100);
  EXPECT_THROW(truncate_int(1, dtypes::float32), DTypeError);
}

// ---- small floats ----

// Value of a code of a format with sign, exponent and mantissa fields, by the definition; infinities and NaN are the
// caller's.
double defined_value(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const uint32_t m = code & ((1u << mantissa_bits) - 1), e = code >> mantissa_bits & ((1u << exponent_bits) - 1);
  const double magnitude = e ? std::ldexp(1.0 + std::ldexp(m, -mantissa_bits), static_cast<int>(e) - bias)
                             : std::ldexp(m, 1 - bias - mantissa_bits);
  return code >> (exponent_bits + mantissa_bits) ? -magnitude : magnitude;
}

TEST(DType, EveryHalf) {
  for (uint32_t h = 0; h < 65536; h++) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    if ((h & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(f)) << h;
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(f)))) << h;
    } else {
      const double expected =
          (h & 0x7fff) == 0x7c00 ? (h & 0x8000 ? -INFINITY : INFINITY) : defined_value(h, 5, 10, 15);
      ASSERT_EQ(std::bit_cast<uint32_t>(f), std::bit_cast<uint32_t>(static_cast<float>(expected))) << h;
      ASSERT_EQ(float_to_half(f), h);
    }
  }
}

TEST(DType, EveryBFloat16) {
  for (uint32_t h = 0; h < 65536; h++) {
    const float f = bfloat16_to_float(static_cast<uint16_t>(h));
    if ((h & 0x7fff) > 0x7f80) {
      EXPECT_TRUE(std::isnan(f)) << h;
      EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(f)))) << h;
    } else {
      const double expected =
          (h & 0x7fff) == 0x7f80 ? (h & 0x8000 ? -INFINITY : INFINITY) : defined_value(h, 8, 7, 127);
      ASSERT_EQ(std::bit_cast<uint32_t>(f), std::bit_cast<uint32_t>(static_cast<float>(expected))) << h;
      ASSERT_EQ(float_to_bfloat16(f), h);
    }
  }
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7f800001u)))))
      << "a payload only in the low bits";
}

// Between each pair of neighbours: just below the middle goes down, just above goes up, the middle goes to the even
// code.
template <class Encode> void check_rounding(uint32_t first, uint32_t last, Encode encode, double (*value)(uint32_t)) {
  for (uint32_t code = first; code < last; code++) {
    const double a = value(code), b = value(code + 1), middle = (a + b) / 2;
    ASSERT_EQ(encode(middle), code & 1 ? code + 1 : code);
    ASSERT_EQ(encode(std::nextafter(static_cast<float>(middle), 0.0f)), code);
    ASSERT_EQ(encode(std::nextafter(static_cast<float>(middle), INFINITY)), code + 1);
  }
}

TEST(DType, HalfRoundsToNearestEven) {
  auto value = [](uint32_t c) { return defined_value(c, 5, 10, 15); };  // the code of infinity stands for 65536
  check_rounding(0, 0x7c00, [](double v) { return uint32_t{float_to_half(static_cast<float>(v))}; }, value);
  check_rounding(0, 0x7c00, [](double v) { return float_to_half(static_cast<float>(-v)) - 0x8000u; }, value);
  EXPECT_EQ(float_to_half(1e30f), 0x7c00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(DType, BFloat16RoundsToNearestEven) {
  auto value = [](uint32_t c) { return defined_value(c, 8, 7, 127); };
  check_rounding(0, 0x7f7f, [](double v) { return uint32_t{float_to_bfloat16(static_cast<float>(v))}; }, value);
  check_rounding(0, 0x7f7f, [](double v) { return float_to_bfloat16(static_cast<float>(-v)) - 0x8000u; }, value);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bfloat16(-0.0f), 0x8000);
}

TEST(DType, EveryFp8Decodes) {
  for (size_t kind = 0; kind < kFp8.size(); kind++) {
    const bool fnuz = kFp8[kind].name().ends_with("fnuz");
    for (int code = 0; code < 256; code++) {
      const float expected = fnuz && code == 0x80 ? NAN
                             : code < 128         ? kFp8Values[kind][code]
                                                  : -kFp8Values[kind][code - 128];
      const float got = fp8_to_float(static_cast<uint8_t>(code), kFp8[kind]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << kFp8[kind] << " " << code;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << kFp8[kind] << " " << code;
      }
    }
  }
  EXPECT_THROW(fp8_to_float(0, dtypes::float16), DTypeError);
  EXPECT_THROW(float_to_fp8(0, dtypes::int8), DTypeError);
}

// The nearest finite code by search over all of them, the even one of two equally near: the definition of the
// conversion.
uint8_t nearest_fp8(float v, size_t kind) {
  const bool fnuz = kFp8[kind].name().ends_with("fnuz");
  const double magnitude = std::min(std::abs(double{v}), 1e6);  // beyond all of them distances would be rounded away
  int best = 0;
  for (int code = 1; code < 128; code++) {
    const double mine = kFp8Values[kind][code];
    if (!std::isfinite(mine)) break;
    const double there = std::abs(magnitude - mine), here = std::abs(magnitude - kFp8Values[kind][best]);
    if (there < here || (there == here && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best == 0 && fnuz ? 0 : best | (std::signbit(v) ? 0x80 : 0));
}

TEST(DType, Fp8RoundsToNearestEvenAndSaturates) {
  std::mt19937 random(7);
  for (size_t kind = 0; kind < kFp8.size(); kind++) {
    auto check = [&](float v) {
      if (!std::isfinite(v)) return;
      ASSERT_EQ(float_to_fp8(v, kFp8[kind]), nearest_fp8(v, kind)) << kFp8[kind] << " " << v;
      ASSERT_EQ(float_to_fp8(-v, kFp8[kind]), nearest_fp8(-v, kind)) << kFp8[kind] << " " << -v;
    };
    for (int code = 0; code < 127; code++) {
      const float a = kFp8Values[kind][code], b = kFp8Values[kind][code + 1], middle = (a + b) / 2;
      for (float v : {a, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) check(v);
    }
    for (int i = 0; i < 20000; i++) check(std::bit_cast<float>(static_cast<uint32_t>(random())));
    for (int i = 0; i < 20000; i++)
      check(std::ldexp(static_cast<float>(random()) / 4.0e9f, static_cast<int>(random() % 40) - 22));
    check(std::numeric_limits<float>::max());
    check(std::numeric_limits<float>::denorm_min());
    EXPECT_TRUE(std::isnan(fp8_to_float(float_to_fp8(NAN, kFp8[kind]), kFp8[kind])));
  }
  EXPECT_EQ(float_to_fp8(INFINITY, dtypes::fp8e5m2), 0x7c);
  EXPECT_EQ(float_to_fp8(-INFINITY, dtypes::fp8e5m2), 0xfc);
  EXPECT_EQ(float_to_fp8(-INFINITY, dtypes::fp8e4m3), 0xff);
  EXPECT_EQ(float_to_fp8(INFINITY, dtypes::fp8e4m3fnuz), 0x80);
}

TEST(DType, TruncateFloat) {
  EXPECT_EQ(truncate_float(0.1, dtypes::float64), 0.1);
  EXPECT_EQ(truncate_float(0.1, dtypes::float32), double{0.1f});
  EXPECT_EQ(truncate_float(0.1, dtypes::float16), 0.0999755859375);
  EXPECT_EQ(truncate_float(0.1, dtypes::bfloat16), 0.10009765625);
  EXPECT_EQ(truncate_float(1e9, dtypes::fp8e4m3), 448);
  EXPECT_EQ(truncate_float(70000, dtypes::float16), INFINITY);
  // A double between two halves whose float image is the middle: one rounding, not two.
  EXPECT_EQ(truncate_float(1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -50), dtypes::float16),
            1.0 + std::ldexp(1.0, -10));
  EXPECT_THROW(truncate_float(1, dtypes::int32), DTypeError);
}

// Every value of an integer or small float type that the destination must keep.
std::vector<double> samples(DType d) {
  std::vector<double> out;
  if (d.is_bool()) return {0, 1};
  if (d.is_fp8()) {
    for (int i = 0; i < 256; i++) out.push_back(fp8_to_float(static_cast<uint8_t>(i), d));
  } else if (d == dtypes::float16 || d == dtypes::bfloat16) {
    for (int i = 0; i < 65536; i++)
      out.push_back(d == dtypes::float16 ? half_to_float(static_cast<uint16_t>(i))
                                         : bfloat16_to_float(static_cast<uint16_t>(i)));
  } else if (d == dtypes::float32) {
    out = {1 + std::ldexp(1.0, -23), std::ldexp(1.0, -149), double{std::numeric_limits<float>::max()}};
  } else if (d == dtypes::float64) {
    out = {0.1};
  } else {
    for (int128 v : {int_min(d), int_min(d) + 1, int_max(d), int_max(d) - 1}) out.push_back(static_cast<double>(v));
  }
  return out;
}

TEST(DType, LosslessCastsKeepEveryValue) {
  for (DType from : kAll) {
    for (DType to : kAll) {
      if (from.is_weak() || to.is_weak() || from == to || (from.is_int() && from.bitsize() == 64)) continue;
      bool keeps = true;
      for (double v : samples(from)) {
        if (std::isnan(v)) continue;
        if (to.is_float()) keeps &= std::bit_cast<uint64_t>(truncate_float(v, to)) == std::bit_cast<uint64_t>(v);
        else if (to.is_bool()) keeps &= v == 0 || v == 1;
        else keeps &= !from.is_float() && static_cast<double>(truncate_int(static_cast<int128>(v), to)) == v;
      }
      if (can_lossless_cast(from, to)) {
        EXPECT_TRUE(keeps) << from << " to " << to;
      } else if (!to.is_fp8() &&
                 to != dtypes::bfloat16) {  // by definition nothing but bool is cast to these without loss
        EXPECT_FALSE(keeps) << from << " to " << to;
      }
    }
  }
  EXPECT_TRUE(can_lossless_cast(dtypes::uint64, dtypes::weakint));
  EXPECT_FALSE(can_lossless_cast(dtypes::int64, dtypes::float64));
  EXPECT_FALSE(can_lossless_cast(dtypes::int64, dtypes::uint64));
  EXPECT_FALSE(can_lossless_cast(dtypes::weakint, dtypes::int32));
  EXPECT_FALSE(can_lossless_cast(dtypes::float32, dtypes::weakfloat));
}

}  // namespace
}  // namespace tg
