/// \file The layouts of the table of matrix instructions against what the vendors document, written down once more as
/// they do it: by formulas of the thread and of the element.
#include <gtest/gtest.h>

#include <functional>

#include "tinygrad/base/text.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {
namespace {
struct At {
  int row, column;
};
using Formula = std::function<At(int lane, int i)>;  // of element i, counted in elements

/// Compares operand `which` of an instruction, element by element. Rows of a and of the result are m, columns of b and
/// of the result n.
void expect_layout(const char* name, size_t which, int elements, const Formula& documented) {
  const TensorCore* t = find_tensor_core(name);
  ASSERT_NE(t, nullptr) << name;
  const int pack = which == 2 ? 1 : t->pack;
  ASSERT_EQ(fragment_registers(t->layout[which]) * pack, elements) << name << " " << which;
  for (int lane = 0; lane < t->threads; lane++)
    for (int i = 0; i < elements; i++) {
      const FragmentElement e = fragment_element(t->layout[which], lane, i / pack);
      const int k = e.k * pack + i % pack;
      const At at = documented(lane, i);
      EXPECT_EQ(which == 1 ? k : e.m, at.row) << name << " " << which << ": thread " << lane << " element " << i;
      EXPECT_EQ(which == 0 ? k : e.n, at.column) << name << " " << which << ": thread " << lane << " element " << i;
    }
}

// PTX ISA, "Warp-level matrix instructions: mma": groupID = lane / 4, threadID_in_group = lane % 4.
TEST(MatrixLayouts, Mma16x8ThatOfPtx) {
  for (const char* name : {"mma_m16n8k16_f16", "mma_m16n8k16_bf16"}) {
    expect_layout(name, 0, 8, [](int lane, int i) {
      return At{lane / 4 + ((i >= 2 && i < 4) || i >= 6 ? 8 : 0), lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
    });
    expect_layout(name, 1, 4, [](int lane, int i) { return At{lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4}; });
  }
  for (const char* name : {"mma_m16n8k16_f16", "mma_m16n8k8_f16", "mma_m16n8k32_s8", "mma_m16n8k8_tf32"})
    expect_layout(name, 2, 4, [](int lane, int i) { return At{lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + (i & 1)}; });
  expect_layout("mma_m16n8k8_f16", 0, 4,
                [](int lane, int i) { return At{lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + (i & 1)}; });
  expect_layout("mma_m16n8k8_f16", 1, 2, [](int lane, int i) { return At{lane % 4 * 2 + i, lane / 4}; });
  for (const char* name : {"mma_m16n8k32_s8", "mma_m16n8k32_u8", "mma_m16n8k32_e4m3", "mma_m16n8k32_e5m2"}) {
    expect_layout(name, 0, 16, [](int lane, int i) {
      return At{lane / 4 + ((i >= 4 && i < 8) || i >= 12 ? 8 : 0), lane % 4 * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
    });
    expect_layout(name, 1, 8, [](int lane, int i) { return At{lane % 4 * 4 + (i & 3) + (i >= 4 ? 16 : 0), lane / 4}; });
  }
  expect_layout("mma_m16n8k8_tf32", 0, 4,
                [](int lane, int i) { return At{lane / 4 + (i & 1 ? 8 : 0), lane % 4 + (i >= 2 ? 4 : 0)}; });
  expect_layout("mma_m16n8k8_tf32", 1, 2, [](int lane, int i) { return At{lane % 4 + (i ? 4 : 0), lane / 4}; });
}

TEST(MatrixLayouts, Mfma16x16) {
  for (const char* name : {"mfma_16x16x16_f16", "mfma_16x16x16_bf16"}) {
    expect_layout(name, 0, 4, [](int lane, int i) { return At{lane % 16, 4 * (lane / 16) + i}; });
    expect_layout(name, 1, 4, [](int lane, int i) { return At{4 * (lane / 16) + i, lane % 16}; });
    expect_layout(name, 2, 4, [](int lane, int i) { return At{4 * (lane / 16) + i, lane % 16}; });
  }
}

// AMD, "CDNA 3 Instruction Set Architecture", and the notes of the AMD matrix instruction calculator.
TEST(MatrixLayouts, Mfma32x32) {
  for (const char* name : {"mfma_32x32x8_f16", "mfma_32x32x8_bf16"}) {
    expect_layout(name, 0, 4, [](int lane, int i) { return At{lane % 32, 4 * (lane / 32) + i}; });
    expect_layout(name, 1, 4, [](int lane, int i) { return At{4 * (lane / 32) + i, lane % 32}; });
  }
  for (const char* name : {"mfma_32x32x16_i8", "mfma_32x32x16_e4m3"}) {
    expect_layout(name, 0, 8, [](int lane, int i) { return At{lane % 32, 8 * (lane / 32) + i}; });
    expect_layout(name, 1, 8, [](int lane, int i) { return At{8 * (lane / 32) + i, lane % 32}; });
  }
  expect_layout("mfma_32x32x8_i8", 0, 4, [](int lane, int i) { return At{lane % 32, 4 * (lane / 32) + i}; });
  expect_layout("mfma_32x32x2_f32", 0, 1, [](int lane, int) { return At{lane % 32, lane / 32}; });
  expect_layout("mfma_32x32x2_f32", 1, 1, [](int lane, int) { return At{lane / 32, lane % 32}; });
  for (const char* name : {"mfma_32x32x8_bf16", "mfma_32x32x2_f32", "mfma_32x32x16_i8"})
    expect_layout(name, 2, 16, [](int lane, int i) { return At{8 * (i / 4) + 4 * (lane / 32) + i % 4, lane % 32}; });
}

// AMD, "RDNA 3 Instruction Set Architecture", 7.9: lanes 16 to 31 repeat the factors of lanes 0 to 15; of the result
// register i has rows 2 i and 2 i + 1. "RDNA 4": eight elements of k for each half, rows 0 to 7 and 8 to 15.
TEST(MatrixLayouts, Wmma16x16) {
  for (const char* name : {"wmma_gfx11_f16", "wmma_gfx11_bf16", "wmma_gfx11_i8"}) {
    expect_layout(name, 0, 16, [](int lane, int i) { return At{lane % 16, i}; });
    expect_layout(name, 1, 16, [](int lane, int i) { return At{i, lane % 16}; });
    expect_layout(name, 2, 8, [](int lane, int i) { return At{2 * i + lane / 16, lane % 16}; });
  }
  for (const char* name : {"wmma_gfx12_f16", "wmma_gfx12_bf16", "wmma_gfx12_i8", "wmma_gfx12_e4m3"}) {
    expect_layout(name, 0, 8, [](int lane, int i) { return At{lane % 16, 8 * (lane / 16) + i}; });
    expect_layout(name, 1, 8, [](int lane, int i) { return At{8 * (lane / 16) + i, lane % 16}; });
    expect_layout(name, 2, 8, [](int lane, int i) { return At{8 * (lane / 16) + i, lane % 16}; });
  }
}

// PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16": a warp of the warpgroup has 16 rows, thread by thread and
// register by register those of an mma, N / 8 times side by side.
TEST(MatrixLayouts, WgmmaThatOfPtx) {
  int count = 0;
  for (const TensorCore& t : tensor_core_table()) {
    if (!t.reads_memory()) continue;
    count++;
    EXPECT_EQ(t.m, 64) << t.name;
    EXPECT_EQ(t.threads, 128) << t.name;
    EXPECT_EQ(t.k * t.a.itemsize(), 32) << t.name;
    expect_layout(t.name, 2, t.n / 2, [](int thread, int i) {
      return At{thread / 32 * 16 + thread % 32 / 4 + (i / 2 % 2) * 8, i / 4 * 8 + thread % 4 * 2 + i % 2};
    });
  }
  EXPECT_EQ(count, 21);
}

// PTX ISA, "Matrix Descriptor Format": 14 bits each of the address from bit 0, of the leading dimension byte offset
// from bit 16 and of the stride dimension byte offset from bit 32, in units of 16 bytes; bits 62 and 63: 1 is 128-byte
// swizzling.
TEST(MatrixLayouts, DescriptorsAreThoseOfPtx) {
  const uint64_t d = SharedMatrix{.across = true, .leading = 8192, .stride = 1024}.descriptor(0x2c400);
  EXPECT_EQ(d & 0x3fff, 0x2c40u);
  EXPECT_EQ(d >> 16 & 0x3fff, 512u);
  EXPECT_EQ(d >> 32 & 0x3fff, 64u);
  EXPECT_EQ(d >> 49 & 7, 0u);
  EXPECT_EQ(d >> 62, 1u);
  const SharedMatrix read = SharedMatrix::from_text(SharedMatrix{true, 4096, 1024}.text());
  EXPECT_TRUE(read.across);
  EXPECT_EQ(read.leading, 4096);
  EXPECT_EQ(read.stride, 1024);
  EXPECT_FALSE(SharedMatrix::from_text(SharedMatrix{}.text()).across);
}

// PTX ISA, "Shared Memory Matrix Layout", the canonical layouts of 128-byte swizzling, in elements of 128 bits (T of
// the type are one): K-major ((8, m), (T, 2k)) : ((8 T, SBO), (1, T)), MN-major ((T, 8, m), (8, k)) : ((1, T, LBO),
// (8 T, SBO)); the swizzle is an exclusive or of bits 4 to 6 of the address with bits 7 to 9.
TEST(MatrixLayouts, SwizzleThatOfPtx) {
  auto swizzled = [](int64_t byte) { return byte ^ (byte >> 3 & 0x70); };
  for (const int64_t itemsize : {1, 2, 4}) {
    const SharedMatrix form{.across = false, .leading = 16, .stride = 1024};
    const int64_t t = 16 / itemsize;
    for (int64_t part = 0; part < 8; part += 2)  // an instruction takes 32 bytes of a row
      for (int64_t i = 0; i < 64; i++)
        for (int64_t k = 0; k < 2 * t; k++)
          ASSERT_EQ(SharedMatrix::byte_of(form.descriptor(4096 + part * 16), false, i, k, itemsize),
                    swizzled(4096 + part * 16 + (i % 8 * 8 * t + k % t + k / t * t) * itemsize + i / 8 * 1024));
  }
  const SharedMatrix form{.across = true, .leading = 8192, .stride = 1024};
  for (int64_t step = 0; step < 4; step++)  // an instruction takes 16 rows
    for (int64_t i = 0; i < 256; i++)
      for (int64_t k = 0; k < 16; k++)
        ASSERT_EQ(SharedMatrix::byte_of(form.descriptor(2048 * step), true, i, k, 2),
                  swizzled(2048 * step + (i % 8 + i / 8 % 8 * 8 + k % 8 * 64) * 2 + i / 64 * 8192 + k / 8 * 1024));
}

/// Every element of each matrix is in some register, and of the result in one alone.
TEST(MatrixLayouts, CoverTheirMatrices) {
  for (const TensorCore& t : tensor_core_table()) {
    if (t.threads == 1) continue;
    const int size[3] = {t.m * t.words(), t.n * t.words(), t.m * t.n};
    for (size_t which = t.reads_memory() ? 2 : 0; which < 3; which++) {
      std::vector<int> seen(static_cast<size_t>(size[which]));
      for (int lane = 0; lane < t.threads; lane++)
        for (int i = 0; i < fragment_registers(t.layout[which]); i++) {
          const FragmentElement e = fragment_element(t.layout[which], lane, i);
          const int at = which == 0 ? e.m * t.words() + e.k : which == 1 ? e.n * t.words() + e.k : e.m * t.n + e.n;
          seen.at(static_cast<size_t>(at))++;
        }
      const int times = t.threads * fragment_registers(t.layout[which]) / size[which];
      for (int n : seen) EXPECT_EQ(n, times) << t.name << " " << which;
      if (which == 2) EXPECT_EQ(times, 1) << t.name;
    }
  }
}

}  // namespace
}  // namespace tg
