/// \file Matrix product rows: every transpose, odd sizes, batches, matrix times vector, quantized matrices.
#include <array>
#include <cmath>

#include "apps/tg/bench_kernel.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/dtype.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/io/ggml_dequantize.h"

namespace tg::bench {
namespace {

using io::GgmlType;

/// (m, k) @ (k, n); a transposed operand is stored with its axes swapped.
struct Product {
  int64_t m, k, n;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 0;  ///< 0: no such axis
};
constexpr Product nn(int64_t n) { return {n, n, n}; }
constexpr Product nt(int64_t n) { return {n, n, n, false, true}; }
constexpr Product tn(int64_t n) { return {n, n, n, true, false}; }

Samples matmul(const Context& c, const Product& p, double tolerance = kTolerance) {
  const auto stored = [&](int64_t rows, int64_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    return p.batch ? Shape{p.batch, rows, columns} : Shape{rows, columns};
  };
  const Tensor a = input(stored(p.m, p.k, p.transpose_a), 1), b = input(stored(p.k, p.n, p.transpose_b), 2);
  const auto product = [&] {
    return (p.transpose_a ? a.transpose(-1, -2) : a).matmul(p.transpose_b ? b.transpose(-1, -2) : b);
  };
  const std::span<const float> x = a.data<float>(), y = b.data<float>();
  check_samples(
      "matmul", product(),
      [&](size_t at) {
        const auto i = static_cast<int64_t>(at);
        const int64_t col = i % p.n, row = i / p.n % p.m, batch = i / (p.n * p.m);
        Sum sum;
        for (int64_t k = 0; k < p.k; k++)
          sum.add(static_cast<double>(x[batch * p.m * p.k + (p.transpose_a ? k * p.m + row : row * p.k + k)]) *
                  y[batch * p.k * p.n + (p.transpose_b ? col * p.k + k : k * p.n + col)]);
        return sum;
      },
      tolerance);
  const double flops = 2.0 * static_cast<double>(p.m * p.k * p.n * std::max<int64_t>(p.batch, 1));
  return time_run(c, {.flops = flops}, [&] { return Tensors{product()}; });
}

/// Narrow factors, summed in a wider type: int8 to int32; bfloat16 and half as users write it, with a result of the
/// same type.
Samples narrow_matmul(const Context& c, const Product& p, DType narrow) {
  const int64_t n = p.n;
  auto factor = [&](uint64_t seed) {
    return (input({n, n}, seed) * (narrow.is_int() ? 40.0 : 1.0)).cast(narrow).realize();
  };
  const Tensor a = factor(1), b = factor(2), fa = a.cast(dtypes::float32).realize(),
               fb = b.cast(dtypes::float32).realize();
  const auto product = [&] {
    const Tensor right = p.transpose_b ? b.transpose() : b;
    return narrow.is_int() ? a.matmul(right, dtypes::int32) : a.matmul(right);
  };
  const std::span<const float> x = fa.data<float>(), y = fb.data<float>();
  const double tolerance =
      kTolerance + (narrow.is_int() ? 0 : std::ldexp(1.0, -1 - finfo(narrow).mantissa));  // the result is rounded
  check_samples(
      "matmul", product().cast(dtypes::float32),
      [&](size_t at) {
        const size_t side = static_cast<size_t>(n), col = at % side, row = at / side;
        Sum sum;
        for (size_t k = 0; k < side; k++)
          sum.add(static_cast<double>(x[row * side + k]) * y[p.transpose_b ? col * side + k : k * side + col]);
        return sum;
      },
      tolerance);
  return time_run(c, {.flops = 2.0 * static_cast<double>(n * n * n)}, [&] { return Tensors{product()}; });
}

/// float32 factors that matrix instructions may round to 10 bits of mantissa.
Samples tf32_matmul(const Context& c, int64_t n) {
  const tg::Context rounded{{"ALLOW_TF32", 1}};
  return matmul(c, nn(n), 1e-3);
}

constexpr int64_t kSide = 4096;

Samples gemv(const Context& c) {
  const Tensor a = input({kSide, kSide}, 1), v = input({kSide}, 2);
  const std::span<const float> x = a.data<float>(), y = v.data<float>();
  check_samples("gemv", a.matmul(v), [&](size_t row) {
    Sum sum;
    for (size_t k = 0; k < kSide; k++) sum.add(static_cast<double>(x[row * kSide + k]) * y[k]);
    return sum;
  });
  return time_run(c, {.bytes_read = kSide * kSide * kFloat}, [&] { return Tensors{a.matmul(v)}; });
}

/// Where the blocks of a type have their scales. Other bytes may be anything.
struct ScaleBytes {
  std::array<int64_t, 2> halves{-1, -1};  ///< first bytes of numbers in float16
  int64_t exponent = -1;                  ///< byte that is a power of two
};
constexpr uint8_t kHalfExponent = 0x28, kPower = 122;  // of 1/32

/// Returns the blocks of `count` numbers, the same in every run; scales are 1/32 to 1/16.
std::vector<uint8_t> random_blocks(const io::GgmlTypeInfo& type, const ScaleBytes& scales, int64_t count) {
  std::vector<uint8_t> out(static_cast<size_t>(type.size(count)));
  for (size_t i = 0; i < out.size(); i++) {
    const auto byte = static_cast<uint8_t>(mix64(0x9E3779B97F4A7C15 + i + 1) >> 56);
    const auto at = static_cast<int64_t>(i) % type.bytes;
    const bool high = at > 0 && (at - 1 == scales.halves[0] || at - 1 == scales.halves[1]);
    out[i] = high ? kHalfExponent | (byte & 3) : at == scales.exponent ? kPower : byte;
  }
  return out;
}

/// A matrix in packed blocks times a vector: both factors are read once. Expected are sums over the unpacked matrix.
template <io::GgmlType type, ScaleBytes scales> Samples packed_gemv(Context& c) {
  const io::GgmlTypeInfo& info = io::ggml_type_info(type);
  const std::vector<uint8_t> bytes = random_blocks(info, scales, kSide * kSide);
  const Tensor blocks = Tensor::from(bytes, Shape{kSide, kSide / info.elements, info.bytes}).realize(),
               v = input({kSide}, 2);
  const auto matrix = [&] { return io::ggml_dequantize(blocks, type).reshape(kSide, kSide); };
  const Tensor unpacked = matrix().contiguous().realize();
  const std::span<const float> y = v.data<float>(), a = unpacked.data<float>();
  check_samples("quantized gemv", matrix().matmul(v), [&](size_t row) {
    Sum sum;
    for (size_t k = 0; k < kSide; k++) sum.add(static_cast<double>(a[row * kSide + k]) * y[k]);
    return sum;
  });
  return time_run(c, {.bytes_read = static_cast<double>(bytes.size())}, [&] { return Tensors{matrix().matmul(v)}; });
}

constexpr Row kRows[] = {
    {"matmul_f32_256", "GFLOP/s", "(256, 256) @ (256, 256)", [](Context& c) { return matmul(c, nn(256)); }},
    {"matmul_f32_512", "GFLOP/s", "(512, 512) @ (512, 512)", [](Context& c) { return matmul(c, nn(512)); }},
    {"matmul_f32_1024", "GFLOP/s", "(1024, 1024) @ (1024, 1024)", [](Context& c) { return matmul(c, nn(1024)); }},
    {"matmul_f32_2048", "GFLOP/s", "(2048, 2048) @ (2048, 2048)", [](Context& c) { return matmul(c, nn(2048)); }},
    {"matmul_f32_256_nn", "GFLOP/s", "the same as matmul_f32_256", [](Context& c) { return matmul(c, nn(256)); }},
    {"matmul_f32_256_nt", "GFLOP/s", "a @ b.T", [](Context& c) { return matmul(c, nt(256)); }},
    {"matmul_f32_256_tn", "GFLOP/s", "a.T @ b", [](Context& c) { return matmul(c, tn(256)); }},
    {"matmul_f32_512_nn", "GFLOP/s", "the same as matmul_f32_512", [](Context& c) { return matmul(c, nn(512)); }},
    {"matmul_f32_512_nt", "GFLOP/s", "a @ b.T", [](Context& c) { return matmul(c, nt(512)); }},
    {"matmul_f32_512_tn", "GFLOP/s", "a.T @ b", [](Context& c) { return matmul(c, tn(512)); }},
    {"matmul_f32_1024_nn", "GFLOP/s", "the same as matmul_f32_1024", [](Context& c) { return matmul(c, nn(1024)); }},
    {"matmul_f32_1024_nt", "GFLOP/s", "a @ b.T", [](Context& c) { return matmul(c, nt(1024)); }},
    {"matmul_f32_1024_tn", "GFLOP/s", "a.T @ b", [](Context& c) { return matmul(c, tn(1024)); }},
    {"matmul_f32_2048_nn", "GFLOP/s", "the same as matmul_f32_2048", [](Context& c) { return matmul(c, nn(2048)); }},
    {"matmul_f32_2048_nt", "GFLOP/s", "a @ b.T", [](Context& c) { return matmul(c, nt(2048)); }},
    {"matmul_f32_2048_tn", "GFLOP/s", "a.T @ b", [](Context& c) { return matmul(c, tn(2048)); }},
    {"matmul_f32_1000_nn", "GFLOP/s", "(1000, 1000) @ (1000, 1000)", [](Context& c) { return matmul(c, nn(1000)); }},
    {"matmul_f32_1023x777x513_nn", "GFLOP/s", "(1023, 777) @ (777, 513)",
     [](Context& c) { return matmul(c, {1023, 777, 513}); }},
    {"matmul_f32_4096_nn", "GFLOP/s", "(4096, 4096) @ (4096, 4096)", [](Context& c) { return matmul(c, nn(4096)); }},
    {"matmul_f32_batched_32x256_nn", "GFLOP/s", "(32, 256, 256) @ (32, 256, 256)",
     [](Context& c) { return matmul(c, {256, 256, 256, false, false, 32}); }},
    {"matmul_i8_i32_1024_nn", "GFLOP/s", "int8 factors, int32 sums",
     [](Context& c) { return narrow_matmul(c, nn(1024), dtypes::int8); }},
    {"matmul_i8_i32_1024_nt", "GFLOP/s", "a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(1024), dtypes::int8); }},
    {"matmul_bf16_1024_nn", "GFLOP/s", "bfloat16 factors and result, float32 sums",
     [](Context& c) { return narrow_matmul(c, nn(1024), dtypes::bfloat16); }},
    {"matmul_bf16_1024_nt", "GFLOP/s", "a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(1024), dtypes::bfloat16); }},
    {"matmul_bf16_4096_nn", "GFLOP/s", "(4096, 4096) @ (4096, 4096)",
     [](Context& c) { return narrow_matmul(c, nn(4096), dtypes::bfloat16); }},
    {"matmul_bf16_4096_nt", "GFLOP/s", "a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(4096), dtypes::bfloat16); }},
    {"matmul_f16_1024_nn", "GFLOP/s", "half factors and result, float32 sums",
     [](Context& c) { return narrow_matmul(c, nn(1024), dtypes::float16); }},
    {"matmul_f16_1024_nt", "GFLOP/s", "a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(1024), dtypes::float16); }},
    {"matmul_f16_4096_nn", "GFLOP/s", "(4096, 4096) @ (4096, 4096)",
     [](Context& c) { return narrow_matmul(c, nn(4096), dtypes::float16); }},
    {"matmul_f16_4096_nt", "GFLOP/s", "a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(4096), dtypes::float16); }},
    {"gemv_f32_4096", "GB/s", "(4096, 4096) @ (4096)", [](Context& c) { return gemv(c); }},
    // Bytes of the blocks, of a matrix in GGML's types.
    {"gemv_q4_0_4096", "GB/s", "the same in Q4_0 blocks", packed_gemv<GgmlType::kQ4_0, ScaleBytes{{0, -1}}>},
    {"gemv_q8_0_4096", "GB/s", "the same in Q8_0 blocks", packed_gemv<GgmlType::kQ8_0, ScaleBytes{{0, -1}}>},
    {"gemv_q4_1_4096", "GB/s", "the same in Q4_1 blocks", packed_gemv<GgmlType::kQ4_1, ScaleBytes{{0, 2}}>},
    {"gemv_q5_0_4096", "GB/s", "the same in Q5_0 blocks", packed_gemv<GgmlType::kQ5_0, ScaleBytes{{0, -1}}>},
    {"gemv_q5_1_4096", "GB/s", "the same in Q5_1 blocks", packed_gemv<GgmlType::kQ5_1, ScaleBytes{{0, 2}}>},
    {"gemv_q2_k_4096", "GB/s", "the same in Q2_K blocks", packed_gemv<GgmlType::kQ2_K, ScaleBytes{{80, 82}}>},
    {"gemv_q3_k_4096", "GB/s", "the same in Q3_K blocks", packed_gemv<GgmlType::kQ3_K, ScaleBytes{{108, -1}}>},
    {"gemv_q4_k_4096", "GB/s", "the same in Q4_K blocks", packed_gemv<GgmlType::kQ4_K, ScaleBytes{{0, 2}}>},
    {"gemv_q5_k_4096", "GB/s", "the same in Q5_K blocks", packed_gemv<GgmlType::kQ5_K, ScaleBytes{{0, 2}}>},
    {"gemv_q6_k_4096", "GB/s", "the same in Q6_K blocks", packed_gemv<GgmlType::kQ6_K, ScaleBytes{{208, -1}}>},
    {"gemv_iq4_nl_4096", "GB/s", "the same in IQ4_NL blocks", packed_gemv<GgmlType::kIQ4_NL, ScaleBytes{{0, -1}}>},
    {"gemv_iq4_xs_4096", "GB/s", "the same in IQ4_XS blocks", packed_gemv<GgmlType::kIQ4_XS, ScaleBytes{{0, -1}}>},
    {"gemv_mxfp4_4096", "GB/s", "the same in MXFP4 blocks", packed_gemv<GgmlType::kMXFP4, ScaleBytes{.exponent = 0}>},
};

constexpr Row kLargeRows[] = {
    {"matmul_f32_8192_nn", "GFLOP/s", "(8192, 8192) @ (8192, 8192)", [](Context& c) { return matmul(c, nn(8192)); }},
    {"matmul_tf32_4096_nn", "GFLOP/s", "ALLOW_TF32=1, (4096, 4096) @ (4096, 4096)",
     [](Context& c) { return tf32_matmul(c, 4096); }},
    {"matmul_tf32_8192_nn", "GFLOP/s", "ALLOW_TF32=1, (8192, 8192) @ (8192, 8192)",
     [](Context& c) { return tf32_matmul(c, 8192); }},
    {"matmul_bf16_8192_nn", "GFLOP/s", "bfloat16 factors and result, float32 sums",
     [](Context& c) { return narrow_matmul(c, nn(8192), dtypes::bfloat16); }},
    {"matmul_bf16_8192_nt", "GFLOP/s", "a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(8192), dtypes::bfloat16); }},
    {"matmul_f16_8192_nn", "GFLOP/s", "half factors and result, float32 sums",
     [](Context& c) { return narrow_matmul(c, nn(8192), dtypes::float16); }},
    {"matmul_i8_i32_8192_nt", "GFLOP/s", "int8 factors, int32 sums, a @ b.T",
     [](Context& c) { return narrow_matmul(c, nt(8192), dtypes::int8); }},
};

}  // namespace

std::span<const Row> matmul_rows() { return kRows; }
std::span<const Row> large_matmul_rows() { return kLargeRows; }

}  // namespace tg::bench
