/// \file A network of 16-bit numbers on GPUs: its convolutions are matrix instructions, without copies of windows.
#include <gtest/gtest.h>

#include "apps/tg/models.h"
#include "models/resnet.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/nn/state.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {

struct Counts {
  int products = 0, matrices = 0;  ///< kernels of sums of products of some size, and those with matrix instructions
  std::string others;              ///< the names of the rest
};

/// A sum over as many terms as a convolution of ResNet-18 has at least, with as many results.
bool is_large_sum(UOp sink) {
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    const UOps order = u.src(0).toposort();
    int64_t terms = 1;
    for (UOp r : u.srcs().subspan(1)) terms *= constant_size(r);
    const bool product =
        std::any_of(order.begin(), order.end(), [](UOp v) { return v.is(Ops::MUL) && !v.dtype().is_int(); });
    if (product && terms >= 64) return true;
  }
  return false;
}

Counts counts_of(const Tensor& result, const Target& target) {
  const BoundSchedule s = schedule({result});
  const auto renderer = make_renderer(target);
  Counts c;
  for (const ScheduleCall& call : s.schedule->calls) {
    if (!call.kernel) continue;
    {
      const ArenaScope scope(*call.kernel->arena);
      if (!is_large_sum(call.kernel->sink)) continue;
    }
    const auto p = to_program(*call.kernel, *renderer, {});
    c.products++;
    const ArenaScope scope(*p->arena);
    const bool matrices = std::any_of(p->insts.begin(), p->insts.end(), [](UOp u) { return u.is(Ops::WMMA); });
    c.matrices += matrices;
    if (!matrices) c.others += p->name + " ";
  }
  return c;
}

TEST(HalfNetwork, ConvolutionsOfResNet18AreMatrixInstructions) {
  for (DType d : {dtypes::float16, dtypes::bfloat16})
    for (const Target& target : {cuda_target("sm_90"), cuda_target("sm_80"), amdgpu_target("gfx942")}) {
      SCOPED_TRACE(str(d, ' ', target.arch));
      const Context ctx{{"DEV", str("NULL:", target.renderer, ":", target.arch)}};
      const Context narrow{{"DEFAULT_FLOAT", d == dtypes::float16 ? "float16" : "bfloat16"}};
      models::ResNet net = models::resnet18(1000);
      for (Tensor& t : nn::get_parameters(net)) t.realize();
      const Counts c = counts_of(net(Tensor::empty({8, 3, 224, 224}, {.dtype = d})), target);
      EXPECT_GE(c.products, 20);
      EXPECT_GE(c.matrices, c.products - 1) << c.others;
      std::cout << target.arch << " " << d << ": " << c.matrices << " of " << c.products << " " << c.others << "\n";
    }
}

}  // namespace
}  // namespace tg
