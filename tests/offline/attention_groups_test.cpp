/// \file Attention by groups of threads: the values of all its forms by the interpreter.
#include <gtest/gtest.h>

#include "offline/run_groups.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/runtime/wgsl_compiler.h"
#include "unit/attention_kernels.h"

namespace tg {
namespace {
using namespace testing;

/// A GPU with shuffles, and one without; `threads`: of a group, at most.
Target with_shuffles(int64_t threads = 1024) {
  Target t = cuda_target("sm_90");
  t.group_threads = threads;
  return t;
}
Target without_shuffles() { return wgsl_target(""); }

/// Compiles and runs a kernel of float32 numbers, all of whose memory is random; `change` alters it before.
Memory run(const KernelPtr& k, const Target& target, const CodegenOptions& o = {},
           const std::function<void(Memory&)>& change = nullptr, Memory* before = nullptr) {
  const auto p = to_program(*k, *make_renderer(target), o);
  Memory m = random_memory(*k, 3);
  if (change) change(m);
  if (before) *before = m;
  std::vector<std::vector<float>> data;
  std::vector<void*> pointers;
  for (const Values& v : m) {
    auto& d = data.emplace_back();
    for (const ConstValue& x : v) d.push_back(static_cast<float>(x.as_double()));
  }
  for (auto& d : data) pointers.push_back(d.data());
  test::run_groups(p, pointers.data());
  for (size_t i = 0; i < data[0].size(); i++) m[0][i] = ConstValue(static_cast<double>(data[0][i]));
  return m;
}

void check(const Sizes& n, const Target& target, const CodegenOptions& o = {},
           const std::function<void(Memory&)>& change = nullptr) {
  Memory before;
  const Memory m = run(attention(n), target, o, change, &before);
  const std::vector<double> want = expected(before, n);
  for (size_t i = 0; i < want.size(); i++) {
    const double got = m[0][i].as_double();
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got)) << "element " << i << ": " << got;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(got, want[i]) << "element " << i;
    } else {
      ASSERT_NEAR(got, want[i], 1e-5 * (1 + std::abs(want[i]))) << "element " << i;
    }
  }
}

TEST(AttentionGroups, Means) {
  for (const Target& target : {with_shuffles(), with_shuffles(64), with_shuffles(8), without_shuffles()}) {
    SCOPED_TRACE(str(target.arch, ' ', target.group_threads));
    check({1, 32, 64, 3, 16}, target);
    check({2, 32, 192, 5, 48}, target);
    check({1, 96, 128, 8, 64, true}, target);
    check({2, 77, 130, 4, 80}, target);
    check({1, 129, 301, 2, 16, true}, target);
  }
  CodegenOptions alone;
  alone.no_locals = true;
  check({1, 33, 129, 4, 16, true}, with_shuffles(), alone);
  CodegenOptions plain;
  plain.noopt = true;
  check({2, 32, 128, 4, 16, true}, with_shuffles(), plain);
}

TEST(AttentionGroups, MasksThatCloseBlocks) {
  for (int64_t shift : {-70, -33, 0, 1, 2, 40, 200, 1000}) {
    SCOPED_TRACE(shift);
    check({1, 160, 576, 3, 16, true, shift}, with_shuffles());
    check({1, 163, 579, 3, 16, true, shift}, without_shuffles());
  }
}

TEST(AttentionGroups, NaNAndInfinity) {
  const Sizes n{1, 32, 512, 2, 16}, causal{1, 32, 512, 2, 16, true, 230};
  for (const Sizes& s : {n, causal, Sizes{1, 71, 333, 2, 16}})
    for (double x : {std::nan(""), kInf, -kInf, 1e30, -1e30})
      for (int slot : {1, 2, 3}) {
        SCOPED_TRACE(str("value ", x, " in ", slot, s.causal ? " causal" : ""));
        check(s, with_shuffles(), {}, [&](Memory& m) { m[static_cast<size_t>(slot)][61] = x; });
        if (HasFatalFailure()) return;
      }
  // Rows of which the first blocks, or all, are -inf.
  for (int64_t most : {256, 300, 512}) {
    SCOPED_TRACE(most);
    check(n, with_shuffles(), {}, [&](Memory& m) {
      for (int64_t i = 0; i < n.rows; i++) m[1][static_cast<size_t>(2 * i)] = 1.0;
      for (int64_t j = 0; j < most; j++) m[2][static_cast<size_t>(2 * j)] = -kInf;
    });
  }
}

TEST(AttentionGroups, Products) {
  for (const Target& target : {with_shuffles(), without_shuffles()}) {
    SCOPED_TRACE(target.arch);
    for (const ProductSizes& n :
         {ProductSizes{1, 32, 64, 3, 16}, ProductSizes{1, 77, 130, 1, 16, 2, 1}, ProductSizes{1, 97, 161, 4, 64, 1, -1},
          ProductSizes{2, 32, 64, 2, 48, 1, 1, 1, false}, ProductSizes{1, 67, 323, 1, 16, 2, 1, -200},
          ProductSizes{1, 67, 323, 1, 16, 2, -1, 40}})
      expect_product(run(product(n), target), n);
  }
}

TEST(AttentionGroups, Totals) {
  for (const Target& target : {with_shuffles(), without_shuffles()})
    for (bool causal : {false, true})
      for (const auto& [heads, rows, over] :
           std::vector<std::array<int64_t, 3>>{{80, 64, 64}, {1, 77, 301}, {2, 160, 576}}) {
        SCOPED_TRACE(str(target.arch, ' ', heads, ' ', rows, ' ', over, causal ? " causal" : ""));
        const TotalSizes n{heads, rows, over, causal};
        expect_total(run(total(n), target), n);
      }
}
}  // namespace
}  // namespace tg
