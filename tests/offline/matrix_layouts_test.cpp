/// \file The layouts of the table of matrix instructions against what the vendors document, written down once more as
/// they do it: by formulas of the thread and of the element.
#include <gtest/gtest.h>

#include <functional>

#include "tinygrad/base/text.h"
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

/// Every element of each matrix is in some register, and of the result in one alone.
TEST(MatrixLayouts, CoverTheirMatrices) {
  for (const TensorCore& t : tensor_core_table()) {
    if (t.threads == 1) continue;
    const int size[3] = {t.m * t.words(), t.n * t.words(), t.m * t.n};
    for (size_t which = 0; which < 3; which++) {
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
