/// \file Sums of products by dot product instructions: the numbers of the interpreter, and the instruction in the inner
/// loop.

#include <gtest/gtest.h>

#include <random>

#include "unit/kernels.h"
#include "unit/render_helpers.h"

namespace tg {
namespace {
using namespace testing;

/// As `(a * b).sum()` of int8 tensors does: products and result have 8 bits, the sum 32.
KernelPtr wrapping_matmul(int64_t n, int64_t m, int64_t l) {
  KernelMaker k;
  UOp a = k.param(1, n * l, dtypes::int8), b = k.param(2, l * m, dtypes::int8), o = k.param(0, n * m, dtypes::int8);
  UOp i = k.loop(n), j = k.loop(m), r = k.red(l), v = a.index({i * l + r}).load() * b.index({r * m + j}).load();
  return k.finish(
      o.index({i * m + j}).store(v.cast(dtypes::int32).reduce(Ops::ADD, UOps{r}).cast(dtypes::int8)).end(UOps{i, j}));
}
/// Images by filters, with a border of zeros.
KernelPtr narrow_conv(int64_t ic, int64_t oc, int64_t h, int64_t f, DType type) {
  KernelMaker k;
  const int64_t pad = f / 2;
  UOp in = k.param(1, ic * h * h, type), w = k.param(2, oc * ic * f * f, type),
      o = k.param(0, oc * h * h, dtypes::int32);
  UOp c = k.loop(oc), y = k.loop(h), x = k.loop(h), q = k.red(ic), ky = k.red(f), kx = k.red(f), iy = y + ky - pad,
      ix = x + kx - pad;
  UOp ok = (iy.ge(iy.const_like(0)) & (iy < h)) & (ix.ge(ix.const_like(0)) & (ix < h));
  UOp v = ok.where(in.index({((q * h + iy) * h + ix).valid(ok)}).load(), UOp::constant(0, type)).cast(dtypes::int32);
  UOp u = w.index({((c * ic + q) * f + ky) * f + kx}).load().cast(dtypes::int32);
  return k.finish(o.index({(c * h + y) * h + x}).store((v * u).reduce(Ops::ADD, UOps{q, ky, kx})).end(UOps{c, y, x}));
}

/// Random numbers of the whole type, its extremes in plenty.
test::Memory inputs_of(const Program& p, uint32_t seed) {
  ArenaScope scope(*p.arena);
  test::Memory memory(static_cast<size_t>(p.nbuffers));
  std::mt19937 random(seed);
  for (UOp u : p.ast.toposort()) {
    if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace != AddrSpace::kGlobal) continue;
    const auto n = static_cast<size_t>(u.src(0).src(0).const_int());
    const size_t item = eval_itemsize(u.dtype());
    test::Bytes& bytes = memory[static_cast<size_t>(u.arg<ParamArg>().slot)];
    bytes.resize(n * item);
    for (size_t i = 0; i < n; i++) {
      ConstValue v;
      if (u.dtype().is_float()) v = static_cast<double>(static_cast<int>(random() % 33) - 16) * 0.25;
      else if (random() % 4 == 0) v = ConstValue(random() % 2 ? int_max(u.dtype()) : int_min(u.dtype()));
      else v = ConstValue(truncate_int(static_cast<int128>(random()), u.dtype()));
      store_const(bytes.data() + i * item, v, u.dtype());
    }
  }
  return memory;
}

const TensorCore* used(const Program& p) {
  for (const Opt& o : p.applied_opts)
    if (o.op == OptOp::kTc) return &tensor_core_table().at(static_cast<size_t>(o.arg));
  return nullptr;
}

/// Machine code for a target against the interpreter; the name of the instruction, empty when it was not used.
std::string check(const KernelPtr& k, const Target& target, CodegenOptions options = {}) {
  const auto renderer = make_renderer(target);
  CodegenOptions plain;
  plain.noopt = true;
  const auto p = to_program(*k, *renderer, options), meaning = to_program(*k, *renderer, plain);
  test::Memory expected = inputs_of(*meaning, 7), got = expected;
  auto extent = [](const Program& q) {
    return q.thread_extent ? static_cast<int64_t>(q.thread_extent.const_int()) : 1;
  };
  test::run_interp(meaning, expected, {}, 0, extent(*meaning));
  const test::Compiled code = test::compile(p, target);
  const int64_t n = extent(*p), half = n / 2;
  code(got, {}, half, n);
  if (half) code(got, {}, 0, half);
  UOp out;
  {
    ArenaScope scope(*meaning->arena);
    for (UOp u : meaning->ast.toposort())
      if (u.is(Ops::PARAM) && u.arg<ParamArg>().slot == 0) out = u;
    const int64_t at = test::first_difference(got[0], expected[0], out.dtype(), true);
    EXPECT_LT(at, 0) << "element " << at << "\n" << code.source;
  }
  const TensorCore* core = used(*p);
  return core ? core->name : "";
}

class TensorCores : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = llvm_plugin_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

using dtypes::bfloat16, dtypes::float32, dtypes::int16, dtypes::int32, dtypes::int8, dtypes::uint32, dtypes::uint8;

TEST_F(TensorCores, IntegersAreThoseOfTheInterpreter) {
  int native = 0;
  for (const char* processor : {"x86_64,znver4", "x86_64,alderlake", "x86_64,haswell", "x86_64"}) {
    const Target target = test::target("LLVM", processor);
    if (!test::runs_here(target)) continue;
    for (auto [a, b] : {std::pair{uint8, int8}, {int8, uint8}, {int8, int8}, {uint8, uint8}, {int16, int8}})
      for (auto [n, m, l] : {std::array<int64_t, 3>{33, 40, 64}, {17, 35, 37}, {64, 1, 130}, {5, 3, 6}})
        for (int t = 0; t < 4; t++) {
          SCOPED_TRACE(str(processor, ": ", a, " ", b, " ", n, "x", m, "x", l, " t", t));
          native += !check(narrow_matmul(n, m, l, a, b, t & 1 ? int32 : uint32, t & 1, t & 2), target).empty();
        }
    for (auto [n, m, l] : {std::array<int64_t, 3>{33, 40, 64}, {17, 35, 37}}) {
      SCOPED_TRACE(str(processor, ": to 8 bits, ", n, "x", m, "x", l));
      native += !check(wrapping_matmul(n, m, l), target).empty();
    }
    for (DType type : {int8, uint8})
      for (int64_t channels : {8, 5}) {
        SCOPED_TRACE(str(processor, ": convolution ", type, " ", channels));
        native += !check(narrow_conv(channels, 12, 11, 3, type), target).empty();
      }
  }
#if defined(__x86_64__)
  EXPECT_GT(native, 20);
#endif
}

TEST(TensorCoresInC, IntegersAreThoseOfTheInterpreter) {
  if (clang_path().empty()) GTEST_SKIP() << "no clang on this machine: there is no C to compile";
  int native = 0;
  for (const char* processor : {"x86_64,znver4", "x86_64,alderlake", "x86_64,haswell", "x86_64"}) {
    const Target target = test::target("CLANG", processor);
    if (!test::runs_here(target)) continue;
    const int before = native;
    for (auto [a, b] : {std::pair{uint8, int8}, {int8, int8}})
      for (auto [n, m, l] : {std::array<int64_t, 3>{33, 40, 64}, {17, 35, 37}, {64, 1, 130}}) {
        SCOPED_TRACE(str(processor, ": ", a, " ", b, " ", n, "x", m, "x", l));
        native += !check(narrow_matmul(n, m, l, a, b, int32, false, l == 64), target).empty();
      }
    EXPECT_TRUE(!target.has("avx2") || native > before) << processor;
  }
  if (const Target target = test::target("CLANG", "x86_64,znver4"); test::runs_here(target))
    EXPECT_EQ(check(narrow_matmul(40, 96, 130, bfloat16, bfloat16, float32, false, false), target), "vdpbf16ps");
#if defined(__x86_64__)
  EXPECT_GE(native, 6) << "of AVX2 alone";
#endif
}

TEST_F(TensorCores, EveryInstructionThatFitsComputesTheSame) {
  const Target target = test::target("LLVM", "native");
  const auto renderer = make_renderer(target);
  for (const TensorCore* core : renderer->tensor_cores()) {
    const bool floats = core->a.is_float();
    const KernelPtr k = floats ? narrow_matmul(24, 48, 50, bfloat16, bfloat16, float32, false, true)
                               : narrow_matmul(24, 48, 50, int8, int8, int32, false, false);
    CodegenOptions options;
    options.opts = std::vector<Opt>{
        {OptOp::kTc, 2, core - tensor_core_table().data()}, {OptOp::kVector, 1, 16}, {OptOp::kUpcast, 0, 4}};
    SCOPED_TRACE(core->name);
    if (target.vector_bytes < 64) options.opts->resize(1);
    EXPECT_EQ(check(k, target, options), core->name);
  }
}

TEST_F(TensorCores, LargeProductsUseTheInstruction) {
  struct Case {
    const char *processor, *name;
    DType a, b;
  };
  for (const Case& c :
       {Case{"x86_64,znver4", "vpdpbusd", uint8, int8}, Case{"x86_64,znver5", "vpdpbusd", int8, int8},
        Case{"x86_64,alderlake", "vpdpbusd", uint8, uint8}, Case{"x86_64,znver4", "vpdpwssd", int16, int16},
        Case{"x86_64,haswell", "vpmaddwd", int8, int8}, Case{"arm64,neoverse-n1", "sdot", int8, int8},
        Case{"arm64,neoverse-n1", "udot", uint8, uint8}, Case{"arm64,neoverse-v1", "usdot", uint8, int8}}) {
    const Target target = test::target("LLVM", c.processor);
    SCOPED_TRACE(str(c.processor, " ", c.a, " ", c.b));
    const KernelPtr k = narrow_matmul(256, 256, 256, c.a, c.b, int32, false, false);
    const auto p = to_program(*k, *make_renderer(target), {});
    ASSERT_NE(used(*p), nullptr);
    EXPECT_STREQ(used(*p)->name, c.name);
    std::string assembly;
    try {
      assembly = make_llvm_compiler(target)->assembly(p->source);
    } catch (const CompileError& e) {
      if (std::string(e.what()).find("No available targets") == std::string::npos) throw;
      continue;  // an LLVM without this architecture
    }
    EXPECT_NE(assembly.find(std::string("\t") + c.name), std::string::npos) << assembly;
    // Two operations for each of the k products of every element.
    EXPECT_GE(p->estimates.ops, 2.0 * 256 * 256 * 256);
  }
}

/// Products of bfloat16 are exact in float32; what differs is the order of the sum and denormal numbers.
TEST_F(TensorCores, BFloat16UnlessProductsAreToBeExact) {
  const Target target = test::target("LLVM", "x86_64,znver4");
  const KernelPtr k = narrow_matmul(64, 96, 130, bfloat16, bfloat16, float32, false, false);
  CodegenOptions exact;
  exact.tensor_cores = 1;
  EXPECT_EQ(used(*to_program(*k, *make_renderer(target), exact)), nullptr);
  const auto p = to_program(*k, *make_renderer(target), {});
  ASSERT_NE(used(*p), nullptr);
  EXPECT_NE(make_llvm_compiler(target)->assembly(p->source).find("vdpbf16ps"), std::string::npos);
  if (!test::runs_here(target)) return;
  for (auto [n, m, l] : {std::array<int64_t, 3>{64, 96, 130}, {17, 35, 37}, {1, 64, 45}, {40, 1, 128}})
    for (int t = 0; t < 4; t++) check(narrow_matmul(n, m, l, bfloat16, bfloat16, float32, t & 1, t & 2), target);
}

int64_t count(const std::string& text, const std::string& word) {
  int64_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) n++;
  return n;
}

/// Half is widened while panels are filled: conversions stay outside of the loop over products, where there would be
/// one beside each of them.
TEST_F(TensorCores, HalfIsWidenedWhilePanelsAreFilled) {
  for (const char* processor : {"x86_64,znver4", "x86_64,haswell", "x86_64,sapphirerapids"})
    for (bool tb : {false, true}) {
      SCOPED_TRACE(str(processor, tb ? " transposed" : ""));
      const Target target = test::target("LLVM", processor);
      const auto p = to_program(
          *narrow_matmul(1024, 1024, 1024, dtypes::float16, dtypes::float16, float32, false, tb, dtypes::float16),
          *make_renderer(target), {});
      const std::string assembly = make_llvm_compiler(target)->assembly(p->source);
      EXPECT_TRUE(std::any_of(p->applied_opts.begin(), p->applied_opts.end(),
                              [](const Opt& o) { return o.op == OptOp::kStage; }));
      EXPECT_GE(count(assembly, "vfmadd"), 8) << assembly;
      EXPECT_GE(count(assembly, "vcvtph2ps"), 1) << assembly;
    }
}

TEST_F(TensorCores, SettingsTurnThemOff) {
  const Target target = test::target("LLVM", "x86_64,znver4");
  const KernelPtr k = narrow_matmul(128, 128, 128, int8, int8, int32, false, false);
  CodegenOptions off, only;
  off.tensor_cores = 0;
  EXPECT_EQ(used(*to_program(*k, *make_renderer(target), off)), nullptr);
  only.tensor_core = 2;
  const auto p = to_program(*k, *make_renderer(target), only);
  ASSERT_NE(used(*p), nullptr);
  EXPECT_STREQ(used(*p)->name, "vpmaddwd");
  // One row by a matrix whose numbers of a column lie apart: putting words together would take longer than the product.
  EXPECT_EQ(
      used(*to_program(*narrow_matmul(1, 512, 512, uint8, int8, int32, false, false), *make_renderer(target), {})),
      nullptr);
  EXPECT_NE(used(*to_program(*narrow_matmul(1, 512, 512, uint8, int8, int32, false, true), *make_renderer(target), {})),
            nullptr);
  EXPECT_NE(off.hash(), CodegenOptions().hash());
  EXPECT_NE(only.hash(), CodegenOptions().hash());
}

TEST(TensorCoreTable, RowsAreDistinctAndComplete) {
  for (const TensorCore& t : tensor_core_table()) {
    EXPECT_EQ(find_tensor_core(t.name), &t);
    EXPECT_EQ(t.k % t.pack, 0) << t.name;
    EXPECT_TRUE(t.pack == 1 || t.pack * t.a.itemsize() == 4) << t.name << ": a word of 32 bits";
    if (t.threads == 1) EXPECT_EQ(t.pack, t.k) << t.name;
  }
  EXPECT_TRUE(tensor_cores_of(parse_processor("riscv64")).empty());
  EXPECT_EQ(find_tensor_core("none"), nullptr);
}

}  // namespace
}  // namespace tg
