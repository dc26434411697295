/// \file Convolutions of float32 on GPUs: forward and backward they are tiles of multiply-adds, laid along memory.
#include <gtest/gtest.h>

#include "tinygrad/codegen/codegen.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

/// Returns the steps by which kernels with tiles were made, one line each, and "none" for kernels of products without.
std::string tiles_of(const Tensors& results) {
  const BoundSchedule s = schedule(results);
  const auto renderer = make_renderer(cuda_target("sm_90"));
  std::string out;
  for (const ScheduleCall& call : s.schedule->calls) {
    if (!call.kernel) continue;
    const auto p = to_program(*call.kernel, *renderer, {});
    const ArenaScope scope(*p->arena);
    const bool tiles = std::any_of(p->insts.begin(), p->insts.end(), [](UOp u) { return u.is(Ops::WMMA); });
    for (const Opt& o : p->applied_opts)
      if (tiles) out += str(o, " ");
    out += tiles ? "\n" : "";
  }
  return out;
}

Tensor values(const Shape& s) { return Tensor::empty(s, {.dtype = dtypes::float32}); }

TEST(FloatConvolutions, ChannelsAreSummedAndPixelsOfARowAreNeighbours) {
  // Axis 4 are the channels of the input, 3 the pixels of a row, 6 the columns of the window.
  const std::string tiles = tiles_of({values({8, 64, 64, 64}).conv2d(values({64, 64, 3, 3}), {}, {.padding = 1})});
  EXPECT_NE(tiles.find("TC(4"), std::string::npos) << tiles;
  EXPECT_NE(tiles.find("UPCAST(3"), std::string::npos) << tiles;
  EXPECT_NE(tiles.find("STAGE(6, 0)"), std::string::npos) << tiles;
  EXPECT_NE(tiles.find("STAGE(6, 1)"), std::string::npos) << tiles;
}

TEST(FloatConvolutions, GradientsOfPaddedOnesAreTilesToo) {
  const Tensor x = values({4, 32, 56, 56}).requires_grad_(), w = values({64, 32, 5, 5}).requires_grad_();
  const Tensor y = x.conv2d(w, {}, {.padding = 2});
  for (const Tensor& g : y.gradient({x, w}, values({4, 64, 56, 56}))) {
    const std::string tiles = tiles_of({g});
    EXPECT_NE(tiles.find("TC("), std::string::npos) << "no tiles";
  }
}

}  // namespace
}  // namespace tg
