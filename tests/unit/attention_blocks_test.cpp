/// \file Weighted means below a maximum: what is recognised, and the blocks codegen makes of it, for vectors of every
/// size and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention_kernels.h"

namespace tg {
namespace {
using namespace testing;
bool is_blocked(const Program& p) {
  return std::any_of(p.insts.begin(), p.insts.end(),
                     [](UOp u) { return u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal; });
}

/// Compiles, runs in two parts as two threads would, and compares.
void check(const Sizes& n, const Renderer& r, const std::function<void(Memory&)>& change = nullptr,
           const CodegenOptions& o = {}, int64_t rows = 0) {
  const KernelPtr k = attention(n);
  auto p = to_program(*k, r, o);
  Vars vars;
  if (n.variable_rows) vars["rows"] = rows;
  EXPECT_TRUE(is_blocked(*p));
  Memory memory = random_memory(*k, 3);
  if (change) change(memory);
  const std::vector<double> want = expected(memory, n);
  const auto before = memory[0];
  ArenaScope scope(*p->arena);
  const auto extent = p->thread_extent ? static_cast<int64_t>(p->thread_extent.const_int()) : 1;
  LinearEval a(memory, vars), b(memory, vars);
  if (extent > 1) {
    a.begin = extent / 2;
    a.end = extent;
    a.run(p->insts);
    b.begin = 0;
    b.end = extent / 2;
    b.run(p->insts);
  } else a.run(p->insts);
  for (size_t i = 0; i < want.size(); i++) {
    const double got = memory[0][i].as_double();
    if (n.variable_rows && static_cast<int64_t>(i) / n.columns % n.rows >= rows) {
      ASSERT_EQ(got, before[i].as_double()) << "element " << i << " is behind the last row";
      continue;
    }
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got)) << "element " << i << ": " << got;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(got, want[i]) << "element " << i;
    } else {
      ASSERT_NEAR(got, want[i], 1e-5 * (1 + std::abs(want[i]))) << "element " << i;
    }
  }
}

TEST(AttentionBlocks, Recognised) {
  const KernelPtr k = attention({2, 32, 64, 4, 16});
  ArenaScope scope(*k->arena);
  const auto f = match_attention(k->sink);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->over.src(0).const_int(), 64);
  EXPECT_EQ(f->row.src(0).const_int(), 32);
  EXPECT_EQ(f->column.src(0).const_int(), 16);
  EXPECT_EQ(f->top.arg<ReduceArg>().op, Ops::MAX);
  EXPECT_TRUE(f->total);
  EXPECT_TRUE(f->weight.is(Ops::LOAD));
}

TEST(AttentionBlocks, OtherValuesAndSizesAreNot) {
  auto recognised = [](const KernelPtr& k) {
    ArenaScope scope(*k->arena);
    return match_attention(k->sink).has_value();
  };
  EXPECT_TRUE(recognised(attention({1, 32, 64, 4, 16, true})));
  EXPECT_FALSE(recognised(attention({1, 32, 64, 4, 16}, true))) << "the maximum of something else";
  EXPECT_FALSE(recognised(attention({1, 30, 64, 4, 16})));
  EXPECT_FALSE(recognised(attention({1, 32, 65, 4, 16})));
  EXPECT_FALSE(recognised(attention({1, 32, 64, 4, 10})));
  EXPECT_FALSE(recognised(softmax(32, 64)));
  EXPECT_FALSE(recognised(matmul(32, 64, 64)));
}

TEST(AttentionBlocks, VectorsOfAllSizes) {
  for (int bytes : {1, 4, 16, 32, 64}) {
    SCOPED_TRACE(bytes);
    check({1, 32, 64, 3, 16}, TestRenderer(bytes));
    check({2, 32, 192, 5, 48}, TestRenderer(bytes));
    check({1, 96, 128, 2, 16, true}, TestRenderer(bytes));
    check({2, 77, 130, 3, 16}, TestRenderer(bytes));
    check({1, 129, 301, 2, 16, true}, TestRenderer(bytes));
  }
  CodegenOptions plain;
  plain.noopt = true;
  check({2, 32, 128, 4, 16, true}, TestRenderer(32, false), nullptr, plain);
}

/// Runs the kernel in two parts as two threads would.
Memory run_in_parts(const KernelPtr& k, const Renderer& r, const CodegenOptions& o = {}) {
  auto p = to_program(*k, r, o);
  EXPECT_TRUE(is_blocked(*p));
  Memory memory = random_memory(*k, 3);
  ArenaScope scope(*p->arena);
  const auto extent = p->thread_extent ? static_cast<int64_t>(p->thread_extent.const_int()) : 1;
  LinearEval a(memory, {}), b(memory, {});
  a.begin = extent / 2;
  a.end = extent;
  b.begin = 0;
  b.end = extent / 2;
  a.run(p->insts);
  if (extent > 1) b.run(p->insts);
  return memory;
}
void check_product(const ProductSizes& n, const Renderer& r, const CodegenOptions& o = {}) {
  expect_product(run_in_parts(product(n), r, o), n);
}

TEST(AttentionBlocks, ProductsOfScores) {
  for (int bytes : {1, 4, 16, 32, 64}) {
    SCOPED_TRACE(bytes);
    check_product({1, 32, 64, 3, 16}, TestRenderer(bytes));
    check_product({1, 77, 130, 1, 16, 2, 1}, TestRenderer(bytes));
    check_product({1, 97, 161, 1, 16, 1, -1}, TestRenderer(bytes));
    check_product({2, 32, 64, 2, 48, 1, 1, 1, false}, TestRenderer(bytes));
  }
  CodegenOptions plain;
  plain.noopt = true;
  check_product({2, 32, 128, 4, 16, 2, 1}, TestRenderer(32, false), plain);
}

TEST(AttentionBlocks, ProductsWhoseMasksCloseBlocks) {
  for (int mask : {1, -1})
    for (int64_t shift : {-200, 0, 40, 1000}) {
      SCOPED_TRACE(str(mask, ' ', shift));
      check_product({1, 96, 320, 1, 16, 1, mask, shift}, TestRenderer(64));
      check_product({1, 67, 323, 1, 16, 2, mask, shift}, TestRenderer(64));
    }
}

/// Of more heads than rows: rows are what shares keys.
TEST(AttentionBlocks, Totals) {
  for (bool causal : {false, true})
    for (const auto& [heads, rows, over] :
         std::vector<std::array<int64_t, 3>>{{80, 64, 64}, {1, 77, 301}, {2, 160, 576}}) {
      SCOPED_TRACE(str(heads, ' ', rows, ' ', over, causal ? " causal" : ""));
      const TotalSizes n{heads, rows, over, causal};
      const KernelPtr kernel = total(n);
      {
        ArenaScope scope(*kernel->arena);
        const auto form = match_attention(kernel->sink);
        ASSERT_TRUE(form && form->kind == AttentionForm::kTotal);
        EXPECT_EQ(form->row.src(0).const_int(), rows);
      }
      expect_total(run_in_parts(kernel, TestRenderer(32)), n);
    }
}

TEST(AttentionBlocks, AVariableNumberOfRows) {
  for (int64_t rows : {1, 7, 64, 129}) {
    SCOPED_TRACE(rows);
    check({2, 130, 128, 2, 16, false, 1, true}, TestRenderer(32), nullptr, {}, rows);
    check({1, 130, 130, 2, 16, true, 1, true}, TestRenderer(32), nullptr, {}, rows);
  }
  const KernelPtr few = attention({1, 60, 128, 4, 16, false, 1, true});
  ArenaScope scope(*few->arena);
  EXPECT_FALSE(match_attention(few->sink)) << "at most 60 rows";
}

TEST(AttentionBlocks, MasksThatCloseBlocks) {
  for (int64_t shift : {-70, -33, 0, 1, 2, 40, 200, 1000}) {
    SCOPED_TRACE(shift);
    check({1, 160, 576, 3, 16, true, shift}, TestRenderer(64));
    check({1, 163, 579, 3, 16, true, shift}, TestRenderer(64));
  }
}

TEST(AttentionBlocks, NaNAndInfinity) {
  const Sizes n{1, 32, 512, 2, 16}, causal{1, 32, 512, 2, 16, true, 230};
  const double nan = std::nan("");
  for (const Sizes& s : {n, causal, Sizes{1, 71, 333, 2, 16}})
    for (double x : {nan, kInf, -kInf, 1e30, -1e30})
      for (int slot : {1, 2, 3})
        for (int64_t at : {int64_t{61}, int64_t{700}}) {
          SCOPED_TRACE(str("value ", x, " in ", slot, " at ", at, s.causal ? " causal" : ""));
          check(s, TestRenderer(32), [&](Memory& m) {
            m[static_cast<size_t>(slot)][static_cast<size_t>(at) % m[static_cast<size_t>(slot)].size()] = x;
          });
          if (HasFatalFailure()) return;
        }
  // Rows of which the first blocks, or all, are -inf: q k is there.
  for (int64_t most : {256, 300, 512}) {
    SCOPED_TRACE(most);
    check(n, TestRenderer(64), [&](Memory& m) {
      for (int64_t i = 0; i < n.rows; i++) m[1][static_cast<size_t>(2 * i)] = 1.0;
      for (int64_t j = 0; j < most; j++) m[2][static_cast<size_t>(2 * j)] = -kInf;
    });
  }
}

TEST(AttentionBlocks, ResultsDoNotDependOnTheProcessorsCores) {
  const KernelPtr k = attention({4, 64, 256, 4, 16});
  const TestRenderer r(64);
  auto p = to_program(*k, r, {});
  ASSERT_TRUE(p->thread_extent);
  Memory whole = random_memory(*k, 3), parts = whole;
  ArenaScope scope(*p->arena);
  const auto extent = static_cast<int64_t>(p->thread_extent.const_int());
  ASSERT_EQ(extent, 4);
  LinearEval(whole, {}).run(p->insts);
  for (int64_t i = extent; i-- > 0;) {
    LinearEval one(parts, {});
    one.begin = i;
    one.end = i + 1;
    one.run(p->insts);
  }
  for (size_t i = 0; i < whole[0].size(); i++) ASSERT_EQ(whole[0][i].as_double(), parts[0][i].as_double()) << i;
}

}  // namespace
}  // namespace tg
