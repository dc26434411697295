/// \file Bytes side by side in PTX: 16 are read at once only where their address is a multiple of 16.
#include <gtest/gtest.h>

#include <regex>

#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "unit/kernels.h"

namespace tg {
namespace {
using namespace testing;

/// Returns the LLVM IR of a kernel for PTX that adds up the first 16 bytes of each row.
std::string sums(int64_t bytes_of_row) {
  KernelMaker k;
  UOp o = k.param(0, 4096, dtypes::int32), a = k.param(1, 4096 * bytes_of_row, dtypes::uint8), row = k.loop(4096),
      i = k.red(16);
  Target target = cuda_target("sm_90");
  target.renderer = "PTX";
  const UOp sum = a.index({row * bytes_of_row + i}).load().cast(dtypes::int32).reduce(Ops::ADD, UOps{i});
  CodegenOptions unrolled;
  unrolled.opts = Opts{{OptOp::kUnroll, 1, 16}};
  return to_program(*k.finish(o.index({row}).store(sum).end(UOps{row})), *make_renderer(target), unrolled)->source;
}

TEST(PtxBytes, AreReadAtOnceOnlyWhereAligned) {
  for (int64_t bytes_of_row : {16, 18}) {
    SCOPED_TRACE(bytes_of_row);
    const std::string source = sums(bytes_of_row);
    EXPECT_TRUE(std::regex_search(source, std::regex("load <16 x i8>[^\n]*align 16"))) << source;
    EXPECT_FALSE(std::regex_search(source, std::regex("load <16 x i8>[^\n]*align [1248][^0-9]"))) << source;
    EXPECT_TRUE(std::regex_search(source, std::regex("load i8,[^\n]*align 1[^0-9]"))) << source;
  }
}

}  // namespace
}  // namespace tg
