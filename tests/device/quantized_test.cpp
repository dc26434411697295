/// \file Products of quantized matrices and vectors: blocks of GGML's formats unpacked by tensor operations, against
/// their meaning element by element.
#include <gtest/gtest.h>

#include <random>

#include "tinygrad/base/dtype.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

Tensor bytes(const Tensor& b, int64_t from, int64_t to) { return b(Ellipsis, Slice(from, to)); }
Tensor half(const Tensor& b, int64_t at) { return bytes(b, at, at + 2).bitcast(dtypes::float16).to_float(); }
Tensor nibbles(const Tensor& q) { return q.bitwise_and(15).cat(q.rshift(4), -1); }
double half_at(const uint8_t* b, int at) { return half_to_float(static_cast<uint16_t>(b[at] | b[at + 1] << 8)); }
int nibble(const uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

struct Format {
  const char* name;
  int elements, bytes;
  std::vector<int> scales;                 // where the halves are
  Tensor (*unpack)(const Tensor& blocks);  // uint8 (..., bytes) -> float32 (..., elements)
  double (*element)(const uint8_t* block, int i);
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all{
      {"q4_0",
       32,
       18,
       {0},
       [](const Tensor& b) { return (nibbles(bytes(b, 2, 18)).to_float() - 8) * half(b, 0); },
       [](const uint8_t* b, int i) { return (nibble(b + 2, i) - 8) * half_at(b, 0); }},
      {"q4_1",
       32,
       20,
       {0, 2},
       [](const Tensor& b) { return nibbles(bytes(b, 4, 20)).to_float() * half(b, 0) + half(b, 2); },
       [](const uint8_t* b, int i) { return nibble(b + 4, i) * half_at(b, 0) + half_at(b, 2); }},
      {"q8_0",
       32,
       34,
       {0},
       [](const Tensor& b) { return bytes(b, 2, 34).bitcast(dtypes::int8).to_float() * half(b, 0); },
       [](const uint8_t* b, int i) { return static_cast<int8_t>(b[2 + i]) * half_at(b, 0); }},
      // The fifth bits of 32 numbers in four bytes.
      {"q5_1",
       32,
       24,
       {0, 2},
       [](const Tensor& b) {
         const Tensor place = Tensor::arange(8).cast(dtypes::uint8);
         const Tensor fifth = bytes(b, 4, 8).unsqueeze(-1).rshift(place).bitwise_and(1).flatten(-2);
         return (nibbles(bytes(b, 8, 24)) + fifth * 16).to_float() * half(b, 0) + half(b, 2);
       },
       [](const uint8_t* b, int i) {
         return (nibble(b + 8, i) + (b[4 + i / 8] >> i % 8 & 1) * 16) * half_at(b, 0) + half_at(b, 2);
       }},
      // Floats of four bits: a sign, an exponent of two bits, a mantissa of one.
      {"e2m1",
       32,
       18,
       {0},
       [](const Tensor& b) {
         const Tensor q = nibbles(bytes(b, 2, 18)), e = q.rshift(1).bitwise_and(3).to_float(),
                      m = q.bitwise_and(1).to_float();
         const Tensor size = (e == 0).where(m * 0.5, (e - 1).exp2() * (m * 0.5 + 1));
         return (q.bitwise_and(8) != 0).where(-size, size) * half(b, 0);
       },
       [](const uint8_t* b, int i) {
         constexpr double kSize[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
         const int q = nibble(b + 2, i);
         return (q & 8 ? -1 : 1) * kSize[q & 7] * half_at(b, 0);
       }},
      // Sixteen groups, each with a scale of 8 bits, and one scale for all.
      {"groups",
       256,
       274,
       {272},
       [](const Tensor& b) {
         const int64_t rows = b.size(0), n = b.size(1);
         const Tensor q = bytes(b, 0, 256).bitcast(dtypes::int8).to_float().reshape(rows, n, 16, 16);
         const Tensor scale = bytes(b, 256, 272).bitcast(dtypes::int8).to_float() * half(b, 272);
         return (q * scale.unsqueeze(-1)).flatten(2);
       },
       [](const uint8_t* b, int i) {
         return static_cast<int8_t>(b[i]) * half_at(b, 272) * static_cast<int8_t>(b[256 + i / 16]);
       }},
  };
  return all;
}

/// A few rows, and as many as are worth putting the vectors in the order of packed numbers; one vector, and as many as
/// share the values of a row.
class Quantized : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(Quantized, MatrixTimesVectors) {
  const auto [kRows, kVectors] = GetParam();
  const int64_t kColumns = 512;
  for (const Format& f : formats()) {
    SCOPED_TRACE(f.name);
    std::mt19937 rng(3);
    const int64_t blocks = kColumns / f.elements;
    std::vector<uint8_t> data(static_cast<size_t>(kRows * blocks * f.bytes));
    for (uint8_t& x : data) x = static_cast<uint8_t>(rng());
    for (int64_t k = 0; k < kRows * blocks; k++)
      for (int at : f.scales)
        data[static_cast<size_t>(k * f.bytes + at + 1)] =
            static_cast<uint8_t>(0x28 | (rng() & 0x83));  // +-1/32 to 1/16
    std::vector<float> v(static_cast<size_t>(kVectors * kColumns));
    for (float& x : v) x = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 500;
    const Tensor b = Tensor::from(data, Shape{kRows, blocks, f.bytes}), x = Tensor::from(v, Shape{kVectors, kColumns});
    const std::vector<float> got = x.matmul(f.unpack(b).reshape(kRows, kColumns).transpose(0, 1)).to_vector<float>();
    for (int64_t m = 0; m < kVectors; m++)
      for (int64_t i = 0; i < kRows; i++) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < kColumns; k++) {
          const double term = f.element(&data[static_cast<size_t>((i * blocks + k / f.elements) * f.bytes)],
                                        static_cast<int>(k % f.elements)) *
                              static_cast<double>(v[static_cast<size_t>(m * kColumns + k)]);
          want += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(got[static_cast<size_t>(m * kRows + i)], want, 1e-6 * size) << "row " << i << ", vector " << m;
      }
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, Quantized,
                         ::testing::Combine(::testing::Values(12, 263), ::testing::Values(1, 3, 8, 16)));

}  // namespace
}  // namespace tg
