/// \file Stores past the caches and rows that are fetched ahead, in the assembly of processors this machine need not
/// be.
#include <gtest/gtest.h>

#include "kernels.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {
using namespace testing;

class CacheHintsAssembly : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = llvm_plugin_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

int64_t count_in(const std::string& text, const std::string& word) {
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at++) n++;
  return n;
}
/// o[i + from] = a[i] * b[i]
KernelPtr products(int64_t n, int64_t from = 0, bool in_place = false) {
  KernelMaker k;
  UOp a = k.param(1, n), b = k.param(2, n), o = k.param(0, n + from), i = k.loop(n);
  UOp x = in_place ? o.index({i + from}).load() : a.index({i}).load();
  return k.finish(o.index({i + from}).store(x * b.index({i}).load()).end(UOps{i}));
}

TEST_P(CacheHintsAssembly, WhatIsLargerThanTheCachesIsStoredPastThem) {
  Target t = parse_processor(std::string("x86_64,") + GetParam());
  t.device = "CPU";
  t.renderer = "LLVM";
  t.l3_bytes = 16 << 20;
  auto assembly = [&](const KernelPtr& k) {
    return make_llvm_compiler(t)->assembly(to_program(*k, *make_renderer(t), CodegenOptions())->source);
  };
  const std::string large = assembly(products(8 << 20));
  EXPECT_GE(count_in(large, "vmovntps"), 1);
  EXPECT_EQ(count_in(large, "sfence"), 1);
  EXPECT_GE(count_in(large, "vmovups"), count_in(large, "vmovntps")) << "a view may begin anywhere";
  for (const KernelPtr& k :
       {products(1 << 20), products(8 << 20, 3), products(8 << 20, 0, true), reduce_columns(4096, 4096)}) {
    const std::string other = assembly(k);
    EXPECT_EQ(count_in(other, "vmovnt") + count_in(other, "sfence"), 0) << other;
  }
}

TEST_P(CacheHintsAssembly, SoftmaxComputesEachExponentialOnceAndFetchesTheNextRow) {
  Target t = parse_processor(std::string("x86_64,") + GetParam());
  t.device = "CPU";
  t.renderer = "LLVM";
  t.l3_bytes = 16 << 20;
  auto program = [&](int64_t rows, int64_t columns) {
    return to_program(*softmax(rows, columns), *make_renderer(t), CodegenOptions());
  };
  const auto large = program(4096, 4096), small = program(64, 64);
  const std::string text = make_llvm_compiler(t)->assembly(large->source),
                    other = make_llvm_compiler(t)->assembly(small->source);
  EXPECT_GE(count_in(text, "prefetcht0"), 1) << text;
  EXPECT_GE(count_in(text, "vmovntps"), 1) << text;
  EXPECT_EQ(count_in(other, "prefetch") + count_in(other, "vmovnt"), 0) << other;
  EXPECT_EQ(count_in(text, "vdivps"), 0) << "one division a row";
  ArenaScope scope(*large->arena);
  bool kept = false;
  for (UOp u : large->insts) kept |= u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal;
  EXPECT_TRUE(kept);
}

TEST_P(CacheHintsAssembly, RowsOfOddLengthsFetchTheNextOneAndTheLinesTheyWillStore) {
  Target t = parse_processor(std::string("x86_64,") + GetParam());
  t.device = "CPU";
  t.renderer = "LLVM";
  t.l3_bytes = 16 << 20;
  auto source = [&](int64_t rows, int64_t columns) {
    return to_program(*softmax(rows, columns), *make_renderer(t), CodegenOptions())->source;
  };
  const std::string odd = source(512, 20001), small = source(16, 2001);
  EXPECT_GE(count_in(odd, "i32 1, i32 3, i32 1)"), 1) << odd;  // for writing
  EXPECT_EQ(count_in(small, "i32 1, i32 3, i32 1)"), 0) << small;
}

INSTANTIATE_TEST_SUITE_P(Processors, CacheHintsAssembly, ::testing::Values("znver4", "haswell"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace tg
