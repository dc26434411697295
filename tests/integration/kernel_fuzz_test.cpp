/// \file Random triples of an operation, its shape and OptOps: what the processor computes must equal the interpreter
/// running the kernel as it is. Values are small multiples of 1/2, so sums are exact in every order. `KERNEL_FUZZ=N`
/// sets how many (the target `nightly` takes 10,000).
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/interp.h"
#include "unit/kernels.h"
#include "unit/render_helpers.h"

namespace tg {
namespace {
using namespace testing;

class KernelFuzz {
 public:
  explicit KernelFuzz(uint32_t seed) : random_(seed) {}

  KernelPtr kernel(std::string* name) {
    const int kind = below(12);
    const int64_t n = size(), m = size(), l = size();
    *name = str("kind ", kind, " ", n, " ", m, " ", l);
    switch (kind) {
      case 2: {
        const int t = below(4);
        const DType floats[] = {dtypes::bfloat16, dtypes::float16, dtypes::fp8e5m2},
                    integers[] = {dtypes::int8, dtypes::uint8, dtypes::int16};
        const bool whole = below(2);
        const DType a = whole ? integers[below(3)] : floats[below(3)], b = whole ? integers[below(3)] : a;
        *name += str(" t", t, ' ', a, ' ', b);
        if (whole) return narrow_matmul(n, m, l, a, b, dtypes::int32, t & 1, t & 2);
        return narrow_matmul(n, m, l, a, b, dtypes::float32, t & 1, t & 2, below(2) ? a : dtypes::float32);
      }
      case 0:
      case 1: {
        const int t = below(4);
        *name += str(" t", t);
        return matmul(n, m, l, t & 1, t & 2);
      }
      case 3: {
        const int64_t f = pick({1, 2, 3, 5}), h = f + below(20), w = f + below(40), pad = below(static_cast<int>(f)),
                      ic = 1 + below(9), oc = 1 + below(20);
        *name = str("conv ", ic, " ", oc, " ", h, " ", w, " ", f, " ", pad);
        return conv(1 + below(3), ic, oc, h, w, f, pad);
      }
      case 4:
        return conv_weight_grad(1 + below(3), 1 + below(4), 1 + below(9), 5 + below(9), 5 + below(30), 1 + below(4));
      case 5:
        return conv_input_grad(1 + below(3), 1 + below(4), 1 + below(9), 5 + below(9), 5 + below(30), 1 + below(4));
      case 10: {
        const int64_t f = pick({1, 2, 3, 5}), pad = below(static_cast<int>(f)), h = f + below(12), w = f + below(34),
                      ic = 1 + below(20), oc = 1 + below(20);
        *name = str("input gradient ", ic, " ", oc, " ", h, " ", w, " ", f, " ", pad);
        return padded_input_grad(1 + below(3), ic, oc, h, w, f, pad);
      }
      case 11: {
        const int64_t f = pick({2, 3, 4}), step = 1 + below(3), o = 1 + below(24);
        *name = str("pooling ", o, " ", f, " ", step);
        if (below(2)) {
          const int64_t n = 1 + below(5), h = f + below(20), w = f + below(40), pad = below(static_cast<int>(f));
          return below(2) ? columns_to_image(n, h, w, f, step, pad) : taps_to_image(n, h, w, f, step, pad);
        }
        return below(2) ? pool_gradient(1 + below(20), o * f, f)
                        : pool_ties(1 + below(20), (o - 1) * step + f, f, step);
      }
      case 6: return below(2) ? reduce_rows(n, m) : reduce_columns(n, m);
      case 7: return below(2) ? transpose(n, m) : nested(n, m, std::min<int64_t>(l, 20));
      case 8: {
        WeightGrad s{1 + below(20),      1 + below(5), 1 + below(34), 1 + below(12), 1 + below(30),
                     pick({1, 2, 3, 5}), below(3),     1 + below(2),  1 + below(2)};
        s.groups = 1 + below(3) / 2 * below(4);
        s.h += s.dilation * (s.f - 1);
        s.w += s.dilation * (s.f - 1);
        *name = str("weights ", s.bs, " ", s.ic, " ", s.oc, " ", s.h, " ", s.w, " ", s.f, " ", s.pad, " ", s.stride,
                    " ", s.dilation, " ", s.groups);
        return conv_weight_grad(s);
      }
      default: return below(2) ? pad_flip(n, m) : reshaped(1 + below(9), 1 + below(9), 1 + below(9));
    }
  }
  /// A list of OptOps that fit the kernel; empty: those of the heuristic.
  std::vector<Opt> opts(const KernelPtr& k, const Renderer& r) {
    std::vector<Opt> out;
    if (below(3) == 0) return out;
    ArenaScope scope(*k->arena);
    KernelAxes axes(simplify_ranges(k->sink), r);
    double instances = 1;
    if (below(3) == 0)
      for (int i = 0; i < 8; i++) {  // a dot product instruction comes first, where one fits
        const Opt opt{OptOp::kTc, below(static_cast<int>(axes.axes().size())), below(4)};
        try {
          axes.apply(opt);
        } catch (const KernelOptError&) { continue; }
        out.push_back(opt);
        break;
      }
    for (int i = 0; i < 14 && instances < 32; i++) {
      const int n = static_cast<int>(axes.axes().size());
      if (!n) break;
      static constexpr OptOp kOps[] = {OptOp::kUpcast,   OptOp::kUnroll, OptOp::kVector,     OptOp::kPadTo,
                                       OptOp::kSplit,    OptOp::kSwap,   OptOp::kThread,     OptOp::kStage,
                                       OptOp::kGroupTop, OptOp::kPadTo,  OptOp::kStageWindow};
      const OptOp op = kOps[i < 9 ? below(7) : below(11)];  // panels come last
      const bool stages = op == OptOp::kStage || op == OptOp::kStageWindow;
      const int64_t arg = op == OptOp::kSwap ? below(n) : stages ? below(2) : pick({0, 2, 3, 4, 4, 8, 16});
      const Opt opt{op, below(n), arg};
      try {
        axes.apply(opt);
      } catch (const KernelOptError&) { continue; }
      out.push_back(opt);
      instances = 1;
      for (const auto& a : axes.axes())
        if (a.type == AxisType::kUpcast || a.type == AxisType::kUnroll) instances *= static_cast<double>(a.size);
    }
    if (instances > 64) out.clear();
    return out;
  }
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

 private:
  int64_t pick(std::initializer_list<int64_t> l) { return *(l.begin() + below(static_cast<int>(l.size()))); }
  int64_t size() { return below(3) ? 1 + below(70) : pick({1, 2, 16, 31, 32, 33, 64, 96, 127, 128}); }
  std::mt19937 random_;
};

test::Memory inputs_of(const Program& p, uint32_t seed, std::vector<DType>* types) {
  ArenaScope scope(*p.arena);
  test::Memory memory(static_cast<size_t>(p.nbuffers));
  types->resize(memory.size());
  std::mt19937 random(seed);
  for (UOp u : p.ast.toposort()) {
    if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace != AddrSpace::kGlobal) continue;
    const auto slot = static_cast<size_t>(u.arg<ParamArg>().slot);
    const auto n = static_cast<size_t>(u.src(0).src(0).const_int());
    (*types)[slot] = u.dtype();
    memory[slot].resize(n * eval_itemsize(u.dtype()));
    for (size_t i = 0; i < n; i++)
      store_const(memory[slot].data() + i * eval_itemsize(u.dtype()),
                  ConstValue(static_cast<double>(static_cast<int>(random() % 17) - 8) * 0.5), u.dtype());
  }
  return memory;
}

TEST(KernelFuzz, EveryOptimisationComputesWhatTheKernelMeans) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  const char* wanted = std::getenv("KERNEL_FUZZ");
  const int rounds = wanted ? std::atoi(wanted) : 300;
  int optimised = 0, staged = 0;
  for (int i = 0; i < rounds; i++) {
    KernelFuzz fuzz(static_cast<uint32_t>(i));
    std::string name;
    const KernelPtr k = fuzz.kernel(&name);
    Target target = host_processor();
    target.device = "CPU";
    target.renderer = "LLVM";
    static constexpr const char* kLesser[] = {"x86_64,x86-64-v3", "x86_64,haswell", "x86_64"};  // AVX2, and SSE2 alone
    if (const int which = fuzz.below(6); which < 3)
      if (const Target lesser = test::target("LLVM", kLesser[which]); test::runs_here(lesser)) target = lesser;
    target.cores = 2;
    const auto renderer = make_renderer(target);
    CodegenOptions plain, chosen;
    plain.noopt = true;
    const std::vector<Opt> list = fuzz.opts(k, *renderer);
    if (!list.empty()) chosen.opts = list;
    for (const Opt& o : list) {
      name += str(' ', o);
      staged += o.op == OptOp::kStage || o.op == OptOp::kStageWindow;
    }
    SCOPED_TRACE(str("round ", i, ": ", name, " for ", target.cpu));
    std::shared_ptr<Program> p;
    try {
      p = to_program(*k, *renderer, chosen);
    } catch (const KernelOptError&) {
      p = to_program(*k, *renderer, CodegenOptions());  // a range that the kernel's own simplification took away
    }
    const auto meaning = to_program(*k, *renderer, plain);
    optimised += !p->applied_opts.empty();
    for (const Opt& o : p->applied_opts)
      staged += list.empty() && (o.op == OptOp::kStage || o.op == OptOp::kStageWindow);
    std::vector<DType> types;
    test::Memory expected = inputs_of(*meaning, static_cast<uint32_t>(i), &types), got = expected;
    auto extent = [](const Program& q) {
      return q.thread_extent ? static_cast<int64_t>(q.thread_extent.const_int()) : 1;
    };
    test::run_interp(meaning, expected, {}, 0, extent(*meaning));
    const test::Compiled code = test::compile(p, target);
    ASSERT_TRUE(code.kernel);
    // Threads are ranges of the outermost loop, in any order.
    const int64_t n = extent(*p), half = n / 2;
    code(got, {}, half, n);
    if (half) code(got, {}, 0, half);
    const int64_t at = test::first_difference(got[0], expected[0], types[0], true);
    ASSERT_LT(at, 0) << "element " << at << "\n" << code.source;
  }
  EXPECT_GT(optimised, rounds / 2);
  EXPECT_GT(staged, rounds / 20);
}

/// The sums of a large batch: output channels along the lanes, gradients in scratch memory a block of the batch at a
/// time, sums go on in memory.
TEST(KernelFuzz, WeightGradientsOfALargeBatchRunInBlocks) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  Target target = host_processor();
  target.device = "CPU";
  target.renderer = "LLVM";
  target.cores = 2;
  const auto renderer = make_renderer(target);
  CodegenOptions plain;
  plain.noopt = true;
  for (const WeightGrad& s :
       {WeightGrad{80, 3, 32, 10, 10, 3}, WeightGrad{80, 2, 33, 10, 11, 3, 1}, WeightGrad{60, 2, 16, 21, 19, 3, 1, 2},
        WeightGrad{40, 1, 17, 13, 14, 3, 0, 1, 2, 2}, WeightGrad{48, 3, 32, 12, 12, 1, 0, 2}}) {
    SCOPED_TRACE(str(s.bs, " ", s.ic, " ", s.oc, " ", s.h, " ", s.w, " ", s.f, " ", s.pad, " ", s.stride));
    const KernelPtr k = conv_weight_grad(s);
    const auto p = to_program(*k, *renderer, CodegenOptions()), meaning = to_program(*k, *renderer, plain);
    std::vector<DType> types;
    test::Memory expected = inputs_of(*meaning, 7, &types), got = expected;
    test::run_interp(meaning, expected, {}, 0,
                     meaning->thread_extent ? static_cast<int64_t>(meaning->thread_extent.const_int()) : 1);
    const test::Compiled code = test::compile(p, target);
    ASSERT_TRUE(code.kernel);
    const int64_t n = p->thread_extent ? static_cast<int64_t>(p->thread_extent.const_int()) : 1;
    for (int64_t i = n; i-- > 0;) code(got, {}, i, i + 1);
    const int64_t at = test::first_difference(got[0], expected[0], types[0], true);
    EXPECT_LT(at, 0) << "element " << at;
    if (target.vector_bytes < 64 || s.oc != 32 || s.f == 1) continue;
    int staged = 0, blocks = 0;
    for (const Opt& o : p->applied_opts) {
      staged += o.op == OptOp::kStage || o.op == OptOp::kStageWindow;
      blocks += o.op == OptOp::kGroupTop;
    }
    EXPECT_EQ(staged, 1) << s.bs;
    EXPECT_EQ(blocks, 1) << s.bs;
  }
}

TEST(KernelFuzz, PanelsAcrossMemoryAreTransposedInRegisters) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  for (const char* cpu : {"znver4", "haswell"}) {
    const Target target = test::target("LLVM", str("x86_64,", cpu));
    const int lanes = target.vector_bytes / 4;
    for (int64_t depth : {64, 60, 48, 35}) {  // tiles of 16 columns, 15, 16 and 7
      const KernelPtr k = matmul(24, 2 * lanes, depth, false, true);
      CodegenOptions plain, chosen;
      plain.noopt = true;
      chosen.opts = {
          {OptOp::kUpcast, 0, 4}, {OptOp::kVector, 1, lanes}, {OptOp::kUpcast, 1, 2}, {OptOp::kStage, -1, 1}};
      const auto renderer = make_renderer(target);
      const auto p = to_program(*k, *renderer, chosen), meaning = to_program(*k, *renderer, plain);
      EXPECT_EQ(p->source.find("gather"), std::string::npos) << cpu << ' ' << depth;
      EXPECT_NE(p->source.find("shufflevector"), std::string::npos) << cpu << ' ' << depth;
      if (!test::runs_here(target)) continue;
      std::vector<DType> types;
      test::Memory expected = inputs_of(*meaning, 3, &types), got = expected;
      test::run_interp(meaning, expected, {}, 0, 1);
      const test::Compiled code = test::compile(p, target);
      ASSERT_TRUE(code.kernel);
      code(got, {}, 0, 1);
      EXPECT_LT(test::first_difference(got[0], expected[0], types[0], true), 0) << cpu << ' ' << depth;
    }
  }
}

}  // namespace
}  // namespace tg
