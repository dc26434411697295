/// \file Bytes side by side in PTX: 16 are read at once only where their address is a multiple of 16.
#include <gtest/gtest.h>

#include <regex>

#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "unit/kernels.h"

namespace tg {
namespace {
using namespace testing;

/// Returns the LLVM IR of a kernel for PTX that adds 1 to bytes from element `first` on.
std::string increments(int64_t first) {
  KernelMaker k;
  UOp o = k.param(0, 4096, dtypes::uint8), a = k.param(1, 4200, dtypes::uint8), i = k.loop(4096);
  Target target = cuda_target("sm_90");
  target.renderer = "PTX";
  const UOp sum = a.index({i + first}).load() + UOp::constant(ConstValue(int64_t{1}), dtypes::uint8);
  return to_program(*k.finish(o.index({i}).store(sum).end(UOps{i})), *make_renderer(target), {})->source;
}

TEST(PtxBytes, AreReadAtOnceOnlyWhereAligned) {
  for (int64_t first : {0, 1, 8}) {
    SCOPED_TRACE(first);
    const std::string source = increments(first);
    EXPECT_NE(source.find("load <16 x i8>"), std::string::npos) << source;
    EXPECT_FALSE(std::regex_search(source, std::regex("load <16 x i8>[^\n]*align [1248][^0-9]"))) << source;
    EXPECT_TRUE(std::regex_search(source, std::regex("load i8,[^\n]*align 1"))) << source;
  }
}

}  // namespace
}  // namespace tg
