/// \file Windows: panels that hold what a sliding operand reads, each element once.
#include "tinygrad/codegen/scratch/window.h"

#include "kernels.h"
#include "lane_access.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/codegen/plan/flatten_rows.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"

namespace tg::testing {
namespace {
constexpr OptOp kPad = OptOp::kPadTo, kLanes = OptOp::kVector, kTile = OptOp::kUpcast, kSwap = OptOp::kSwap,
                kStage = OptOp::kStage, kWindow = OptOp::kStageWindow, kUnroll = OptOp::kUnroll,
                kThread = OptOp::kThread;

std::shared_ptr<Program> with_opts(const KernelPtr& k, std::vector<Opt> opts, const Renderer& r = TestRenderer(16)) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return check_kernel(k, r, o);
}
/// A strided, dilated, grouped, padded convolution.
KernelPtr wide_conv(int64_t h, int64_t w, int64_t f, int64_t pad, int64_t step, int64_t dilation) {
  KernelMaker k;
  const int64_t groups = 2, ic = 2, oc = 3, oh = (h + 2 * pad - dilation * (f - 1) - 1) / step + 1,
                ow = (w + 2 * pad - dilation * (f - 1) - 1) / step + 1;
  UOp in = k.param(1, groups * ic * h * w), wt = k.param(2, groups * oc * ic * f * f),
      o = k.param(0, groups * oc * oh * ow);
  UOp g = k.loop(groups), q = k.loop(oc), y = k.loop(oh), x = k.loop(ow), c = k.red(ic), ky = k.red(f), kx = k.red(f);
  UOp iy = y * step + ky * dilation - pad, ix = x * step + kx * dilation - pad;
  UOp ok = iy.ge(iy.const_like(0)) & (iy < h) & (ix.ge(ix.const_like(0)) & (ix < w));
  UOp v = in.index({(((g * ic + c) * h + iy) * w + ix).valid(ok)}).load() *
          wt.index({(((g * oc + q) * ic + c) * f + ky) * f + kx}).load();
  return k.finish(
      o.index({((g * oc + q) * oh + y) * ow + x}).store(v.reduce(Ops::ADD, UOps{c, ky, kx})).end(UOps{g, q, y, x}));
}

KernelPtr dilated_conv(int64_t bs, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t f, int64_t pad,
                       int64_t dilation) {
  KernelMaker k;
  const int64_t oh = h + 2 * pad - dilation * (f - 1), ow = w + 2 * pad - dilation * (f - 1);
  UOp in = k.param(1, bs * ic * h * w), wt = k.param(2, oc * ic * f * f), o = k.param(0, bs * oc * oh * ow);
  UOp n = k.loop(bs), q = k.loop(oc), y = k.loop(oh), x = k.loop(ow), c = k.red(ic), ky = k.red(f), kx = k.red(f);
  UOp iy = y + ky * dilation - pad, ix = x + kx * dilation - pad;
  UOp ok = iy.ge(iy.const_like(0)) & (iy < h) & (ix.ge(ix.const_like(0)) & (ix < w));
  UOp v = in.index({(((n * ic + c) * h + iy) * w + ix).valid(ok)}).load() *
          wt.index({((q * ic + c) * f + ky) * f + kx}).load();
  return k.finish(
      o.index({((n * oc + q) * oh + y) * ow + x}).store(v.reduce(Ops::ADD, UOps{c, ky, kx})).end(UOps{n, q, y, x}));
}

TEST(Window, RangesThatShareASumAreFound) {
  auto sizes = [](const KernelPtr& k, size_t operand) {
    ArenaScope scope(*k->arena);
    UOp sink = simplify_ranges(k->sink);
    std::vector<size_t> out;
    for (const Slide& s : slides(window_operand(sink, stageable(sink).at(operand)).value)) out.push_back(s.size());
    std::sort(out.begin(), out.end());
    return out;
  };
  EXPECT_EQ(sizes(conv_input_grad(2, 3, 4, 8, 20, 3), 0),
            (std::vector<size_t>{1, 1, 2, 2}));  // image, channel, rows, columns
  EXPECT_EQ(sizes(conv_input_grad(2, 3, 4, 8, 20, 3), 1),
            (std::vector<size_t>{1, 1, 1, 1}));  // a weight is read once at each position
  EXPECT_EQ(sizes(wide_conv(9, 20, 3, 1, 2, 1), 0), (std::vector<size_t>{1, 1, 2, 2}));
  EXPECT_EQ(sizes(matmul(4, 5, 6), 0), (std::vector<size_t>{1, 1}));
}

TEST(Window, MatchesReference) {
  for (int64_t w : {20, 17, 7}) {
    const auto k = [&] { return conv_input_grad(2, 3, 4, 8, w, 3); };
    with_opts(k(), {{kWindow, 0, 0}});
    with_opts(k(), {{kWindow, -1, 0}});
    with_opts(k(), {{kWindow, 2, 0}, {kStage, 1, 1}});
    with_opts(k(), {{kPad, 3, 4}, {kLanes, 3, 4}, {kTile, 2, 2}, {kWindow, 0, 0}});
    with_opts(k(), {{kPad, 3, 8},
                    {kLanes, 3, 4},
                    {kTile, 3, 2},
                    {kPad, 2, 3},
                    {kTile, 2, 3},
                    {kTile, 1, 3},
                    {kUnroll, 5, 3},
                    {kWindow, 0, 0}});
    with_opts(k(), {{kPad, 3, 4}, {kLanes, 3, 4}, {kSwap, 1, 2}, {kThread, 0, 0}, {kWindow, 2, 0}});
    with_opts(k(), {{kPad, 2, 4}, {kLanes, 2, 4}, {kTile, 3, 0}, {kThread, 1, 0}, {kWindow, 0, 0}});
    with_opts(k(), {{kLanes, 0, 2}, {kSwap, 1, 3}, {kWindow, 3, 0}});
    with_opts(k(), {{kLanes, 6, 4}, {kWindow, 0, 0}});
    with_opts(k(), {{kPad, 3, 16}, {kLanes, 3, 16}, {kWindow, 0, 0}, {kStage, 1, 1}}, TestRenderer(64));
    with_opts(k(), {{kPad, 1, 4}, {kLanes, 1, 4}, {kTile, 3, 0}, {kWindow, 0, 0}});
  }
  for (int64_t step : {1, 2, 3})
    for (int64_t dilation : {1, 2, 3}) {
      const auto k = [&] { return wide_conv(11, 23, 3, 2, step, dilation); };
      with_opts(k(), {{kWindow, 0, 0}});
      with_opts(k(), {{kPad, 3, 4}, {kLanes, 3, 4}, {kPad, 2, 2}, {kTile, 2, 2}, {kTile, 1, 0}, {kWindow, 0, 0}});
      with_opts(k(), {{kPad, 3, 4}, {kLanes, 3, 4}, {kSwap, 1, 2}, {kWindow, 2, 0}});
    }
  with_opts(conv(2, 2, 5, 7, 8, 3, 1), {{kLanes, 3, 8}, {kSwap, 1, 2}, {kWindow, 2, 0}, {kStage, 1, 1}});
  with_opts(conv_weight_grad(4, 2, 3, 8, 20, 3), {{kPad, 6, 16}, {kLanes, 6, 16}, {kTile, 0, 3}, {kWindow, 1, 0}},
            TestRenderer(64));
}

TEST(Window, HoldsEachElementOnceAndIsReadWithoutMasks) {
  auto p = with_opts(conv_input_grad(2, 3, 4, 8, 20, 3),
                     {{kPad, 3, 32}, {kLanes, 3, 16}, {kTile, 3, 2}, {kWindow, 0, 0}}, TestRenderer(64));
  ArenaScope scope(*p->arena);
  int panels = 0, read = 0, depth = 0, masks = 0;
  for (UOp u : p->insts) {
    if (u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal) {
      panels++;
      EXPECT_EQ(shape_of(u).numel(), 4 * (8 + 2) * 48);  // channels, rows, 32 + 2 columns in whole vectors
    }
    if (u.is(Ops::RANGE) && u.arg<RangeArg>().type == AxisType::kReduce) depth++;
    if (u.is(Ops::END)) depth = 0;
    if (depth == 3 && u.in(Ops::CMPLT | Ops::WHERE | Ops::CMPNE)) masks++;
    UOp base = u.is(Ops::LOAD) ? u.src(0).src(0) : u;
    while (base.is(Ops::AFTER)) base = base.src(0);
    if (u.is(Ops::LOAD) && base.is(Ops::BUFFER) && base.arg<ParamArg>().addrspace == AddrSpace::kLocal) {
      read++;
      EXPECT_EQ(u.nsrc(), 1u);
      EXPECT_EQ(lanes_of_access(u.src(0)), Lanes::kUnit);
    }
  }
  EXPECT_EQ(panels, 1);
  EXPECT_EQ(read, 2);
  EXPECT_EQ(masks, 0);
}

TEST(Window, IsChosenForInputGradients) {
  const TestRenderer r(64);
  for (const KernelPtr& k : {conv_input_grad(8, 256, 256, 16, 16, 3), conv_input_grad(8, 128, 256, 30, 30, 3)}) {
    const auto p = to_program(*k, r);
    EXPECT_TRUE(std::any_of(p->applied_opts.begin(), p->applied_opts.end(),
                            [](const Opt& o) { return o.op == kWindow && o.arg == 0; }));
  }
}

TEST(Window, RowsOneAfterTheOtherKeepTheMeaning) {
  std::vector<KernelPtr> kernels;
  for (int64_t w : {5, 7, 8, 10, 20}) {
    kernels.push_back(conv_input_grad(2, 3, 4, 8, w, 3));
    for (int64_t pad : {0, 1}) kernels.push_back(padded_input_grad(2, 3, 2, 6, w, 3, pad));
    kernels.push_back(padded_input_grad(1, 2, 2, 5, w, 5, 1));
    kernels.push_back(conv(2, 3, 4, 6, w, 3, 0));
  }
  for (const KernelPtr& k : kernels) {
    SCOPED_TRACE(&k - kernels.data());
    ArenaScope scope(*k->arena);
    UOp plain = simplify_ranges(k->sink), merged = flatten_output_rows(plain);
    EXPECT_NE(plain, merged);
    Memory want = random_memory(*k, 1), got = want;
    AstEval(want, {}).run(k->sink);
    AstEval(got, {}).run(merged);
    for (size_t i = 0; i < want[0].size(); i++) ASSERT_NEAR(want[0][i].as_double(), got[0][i].as_double(), 1e-4) << i;
  }
  // Steps of two: rows do not follow each other.
  const KernelPtr k = wide_conv(11, 23, 3, 2, 2, 1);
  ArenaScope scope(*k->arena);
  UOp plain = simplify_ranges(k->sink);
  EXPECT_EQ(plain, flatten_output_rows(plain));
}

TEST(Window, RowsAreMergedWhereLanesWouldBeWasted) {
  const TestRenderer r(64);
  const auto p = to_program(*conv_input_grad(64, 64, 64, 8, 8, 3), r);
  EXPECT_TRUE(std::any_of(p->applied_opts.begin(), p->applied_opts.end(),
                          [](const Opt& o) { return o.op == kWindow && o.arg == 0; }));
  check_kernel(conv_input_grad(4, 8, 16, 8, 8, 3), r, {});
  check_kernel(padded_input_grad(2, 16, 16, 7, 7, 3, 1), r, {});
  check_kernel(padded_input_grad(2, 8, 8, 14, 14, 3, 1), r, {});
  check_kernel(conv_input_grad(2, 8, 8, 12, 24, 5), r, {});
  // 24 x 24 outputs are 36 whole vectors.
  const auto large = to_program(*conv_input_grad(64, 32, 32, 24, 24, 5), r);
  EXPECT_TRUE(
      std::none_of(large->applied_opts.begin(), large->applied_opts.end(), [](const Opt& o) { return o.op == kPad; }));
}
TEST(Window, RowsThatAreBroadcastInWeightGradients) {
  // Few input channels and a large filter in steps: lanes go along output channels, and the image is read from a
  // window.
  WeightGrad s{8, 3, 64, 112, 112, 7, 3, 2};
  const auto p = to_program(*conv_weight_grad(s), TestRenderer(64));
  EXPECT_TRUE(
      std::any_of(p->applied_opts.begin(), p->applied_opts.end(), [](const Opt& o) { return o.op == kWindow; }));
  for (int64_t stride : {1, 2, 3}) {
    CodegenOptions o;
    o.opts = std::vector<Opt>{{OptOp::kVector, 0, 4}, {OptOp::kUpcast, 3, 3}, {kWindow, -1, 0}, {OptOp::kStage, -1, 1}};
    WeightGrad small{2, 2, 8, 9, 11, 3, 1, stride};
    check_kernel(conv_weight_grad(small), TestRenderer(16), o);
  }
}
TEST(Window, RowsThatAreBroadcastServeSeveralTiles) {
  // 56 columns are three and a half vectors: lanes go along output channels, and a window holds whole rows for all
  // tiles of them.
  struct Shape {
    int64_t in, filter, pad, dilation;
  };
  for (auto [in, filter, pad, dilation] : {Shape{32, 5, 2, 1}, Shape{64, 3, 2, 2}}) {
    const auto p = to_program(*dilated_conv(4, in, 64, 56, 56, filter, pad, dilation), TestRenderer(64));
    const std::vector<Opt>& opts = p->applied_opts;
    auto has = [&](auto&& f) { return std::any_of(opts.begin(), opts.end(), f); };
    EXPECT_TRUE(has([](const Opt& o) { return o.op == kLanes && o.axis == 1; }));
    EXPECT_TRUE(has([](const Opt& o) { return o.op == kWindow && o.axis == 2; }));
    EXPECT_TRUE(has([](const Opt& o) { return o.op == OptOp::kSplit && o.axis == 2; }))
        << "several rows of the output share a window";
    EXPECT_TRUE(std::none_of(opts.begin(), opts.end(), [](const Opt& o) { return o.op == kPad; }))
        << "nothing is computed in vain";
  }
  for (int64_t dilation : {1, 2})
    for (int64_t filter : {2, 3})
      for (int64_t w : {7, 12}) {
        const auto k = [&] {
          return dilated_conv(2, 3, 8, 4 + dilation * (filter - 1), w + dilation * (filter - 3), filter, dilation,
                              dilation);
        };
        with_opts(k(), {{kLanes, 1, 4}, {kTile, 1, 2}, {kStage, -1, 1}, {kWindow, 2, 0}});
        with_opts(k(), {{kLanes, 1, 4}, {kPad, 3, 4}, {kTile, 3, 4}, {kSwap, 0, 1}, {kStage, 1, 1}, {kWindow, 2, 0}});
        with_opts(k(), {{kLanes, 1, 4},
                        {kPad, 3, 5},
                        {kTile, 3, 5},
                        {kPad, 2, 2},
                        {OptOp::kSplit, 2, 2},
                        {kSwap, 0, 1},
                        {kStage, 1, 1},
                        {kWindow, 2, 0}});
      }
  for (int64_t in : {1, 5})
    for (int64_t w : {9, 20})
      for (int64_t dilation : {1, 2}) {
        check_kernel(dilated_conv(1, in, 32, 5, w, 5, 2 * dilation, dilation), TestRenderer(64), {});
        check_kernel(dilated_conv(1, in, 40, 6, w, 3, 1, dilation), TestRenderer(64), {});
      }
}
}  // namespace
}  // namespace tg::testing
