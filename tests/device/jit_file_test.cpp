/// \file Captured functions in files: what a loaded one computes, what it keeps, and what it refuses.
#include "tinygrad/io/jit_file.h"

#include <gtest/gtest.h>

#include "temp_dir.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;
Floats floats(const Tensor& t) { return t.to_vector<float>(); }
Tensor vec(float a, float b) { return Tensor({a, b}).contiguous().realize(); }

class JitFile : public ::testing::Test {
  void SetUp() override {
    if (!env::JIT) GTEST_SKIP() << "JIT=0 captures nothing";
  }
};

TEST_F(JitFile, ComputesTheSameWithoutCompiling) {
  auto f = jit([](const Tensor& a, const Tensor& b) { return ((a + b).contiguous() * 2).sum() + a; }, {.name = "f"});
  for (int i = 0; i < 3; i++) f(vec(1, 2), vec(3, 4));
  const std::vector<uint8_t> bytes = dump_jit(f.core(), {.note = "kept"});
  f.reset();
  clear_kernel_cache();
  LoadedJit g = parse_jit(bytes);
  EXPECT_EQ(g.name(), "f");
  EXPECT_EQ(g.note(), "kept");
  EXPECT_EQ(g.input_names(), (std::vector<std::string>{"argument 0", "argument 1"}));
  GlobalCounters::reset();
  for (int i = 0; i < 3; i++) {
    float k = static_cast<float>(i);
    Tensors r = g(vec(k, 1), vec(2, k));
    ASSERT_EQ(r.size(), 1u);
    EXPECT_EQ(floats(r[0]), (Floats{2 * (2 * k + 3) + k, 2 * (2 * k + 3) + 1}));
  }
  EXPECT_EQ(GlobalCounters::compiled, 0);
}

TEST_F(JitFile, WeightsAreInTheFileAndShared) {
  testing::TempDir dir;
  {
    Tensor w = vec(10, 20), state = vec(0, 0);
    auto f = jit([=](const Tensor& x) mutable {
      state.assign(state + x);
      return std::pair{x * w, state + 0};
    });
    for (int i = 0; i < 2; i++) f(vec(1, 1));
    save_jit(f, dir / "f.jit");
  }
  LoadedJit g = load_jit(dir / "f.jit");
  Tensors a = g(vec(1, 2)), b = g(vec(1, 2));
  EXPECT_EQ(floats(a[0]), (Floats{10, 40}));
  EXPECT_EQ(floats(b[1]), (Floats{4, 6})) << "what it keeps goes on from where it was saved";
  LoadedJit h = load_jit(dir / "f.jit");
  EXPECT_EQ(floats(h(vec(0, 0))[1]), (Floats{2, 2})) << "each load has memory of its own";
}

TEST_F(JitFile, StateIsGivenByName) {
  Tensor w = vec(10, 20);
  auto f = jit([=](const Tensor& x) { return x * w + 1; });
  for (int i = 0; i < 2; i++) f(vec(1, 1));
  const auto with = dump_jit(f.core()), without = dump_jit(f.core(), {.state = {{"weight", w}}});
  EXPECT_LT(without.size(), with.size());
  EXPECT_EQ(floats(parse_jit(without, {{"weight", vec(2, 3)}})(vec(1, 1))[0]), (Floats{3, 4}));
  Tensor other = vec(5, 5);
  LoadedJit g = parse_jit(without, {{"weight", other}});
  other.assign(vec(7, 7)).realize();
  EXPECT_EQ(floats(g(vec(1, 1))[0]), (Floats{8, 8})) << "it uses the tensor itself";
  EXPECT_THROW(parse_jit(without), ValueError);
  EXPECT_THROW(parse_jit(without, {{"weight", Tensor({1.f, 2.f, 3.f}).realize()}}), ValueError);
}

TEST_F(JitFile, BoundVariablesAndViews) {
  Variable n("n", 1, 8);
  auto f = jit([](const Tensor& x, const BoundVariable& v) { return x.shrink({{SInt(0), SInt(v.uop())}}).sum() * 2; });
  Tensor x = Tensor::arange(8).cast(dtypes::float32).contiguous().realize();
  for (int i = 2; i < 5; i++) f(x, n.bind(i));
  LoadedJit g = parse_jit(dump_jit(f.core()));
  EXPECT_EQ(g(Tensors{x}, {n.bind(3)})[0].item<float>(), 6.f);
  EXPECT_EQ(g(Tensors{x}, {n.bind(8)})[0].item<float>(), 56.f);
  EXPECT_THROW(g(Tensors{x}), JitError);
}

TEST_F(JitFile, RandomNumbersAreNewInEachCall) {
  auto f = jit([](const Tensor& x) { return x + Tensor::rand({2}); });
  for (int i = 0; i < 2; i++) f(vec(0, 0));
  LoadedJit g = parse_jit(dump_jit(f.core()));
  EXPECT_NE(floats(g(vec(0, 0))[0]), floats(g(vec(0, 0))[0]));
}

TEST_F(JitFile, RefusesOtherArguments) {
  auto f = jit([](const Tensor& x) { return x + 1; });
  EXPECT_THROW(dump_jit(f.core()), JitError);
  for (int i = 0; i < 2; i++) f(vec(0, 0));
  LoadedJit g = parse_jit(dump_jit(f.core()));
  EXPECT_THROW(g(Tensor({1.f, 2.f, 3.f}).realize()), JitError);
  EXPECT_THROW(g(vec(0, 0), vec(0, 0)), JitError);
  EXPECT_THROW(g(Tensor({1, 2}).realize()), JitError);
  EXPECT_THROW(g.core()->reset(), JitError);
  EXPECT_THROW(load_jit("no such file"), FileError);
}

TEST_F(JitFile, RunsWithAnotherNumberOfCores) {
  // Large enough that kernels are split over threads, and tiled for the caches.
  const int64_t n = Device::get().compiles() ? 256 : 24;
  const Tensor a = (Tensor::arange(n * n).reshape(n, n) % 7).to_float().contiguous().realize(),
               b = (a.T() + 1).contiguous().realize();
  const auto g = [](const Tensor& x, const Tensor& y) { return std::pair{x.matmul(y), x.sum() + y.exp().sum(0)}; };
  const Floats product = floats(g(a, b).first), rest = floats(g(a, b).second);
  for (int saved : {1, 3, 16}) {
    std::vector<uint8_t> bytes;
    {
      const Context cores{{"NUM_CPU_THREADS", saved}};
      clear_kernel_cache();
      clear_schedule_cache();
      auto f = jit(g);
      for (int i = 0; i < 2; i++) f(a, b);
      bytes = dump_jit(f.core());
    }
    for (int here : {1, 2, 5, 16}) {
      const Context cores{{"NUM_CPU_THREADS", here}};
      Tensors r = parse_jit(bytes)(a, b);
      EXPECT_EQ(floats(r[0]), product) << saved << " cores, run with " << here;
      const Floats got = floats(r[1]);
      for (size_t i = 0; i < rest.size(); i++) ASSERT_NEAR(got[i], rest[i], 1e-4f * rest[i]);
    }
  }
}

TEST_F(JitFile, RunsOnLargerInstructionSetsOnly) {
  const auto saved_for = [](const char* dev) {
    const Context ctx{{"DEV", dev}};
    auto f = jit([](const Tensor& x) { return x * 2 + 1; });
    for (int i = 0; i < 2; i++) f(Tensor::empty({4}, {.device = "NULL"}).realize());
    return dump_jit(f.core());
  };
  const auto loads_on = [](const std::vector<uint8_t>& bytes, const char* dev) -> std::string {
    const Context ctx{{"DEV", dev}};
    try {
      parse_jit(bytes);
      return "loads";
    } catch (const DeviceError& e) { return e.what(); }
  };
  const auto old = saved_for("NULL:LLVM:x86_64,haswell"), wide = saved_for("NULL:LLVM:x86_64,skylake-avx512"),
             arm = saved_for("NULL:LLVM:arm64");
  EXPECT_EQ(loads_on(old, "NULL:LLVM:x86_64,haswell"), "loads");
  EXPECT_EQ(loads_on(old, "NULL:LLVM:x86_64,znver4"), "loads");
  EXPECT_EQ(loads_on(old, "NULL:CLANG:x86_64,icelake-server"), "loads") << "whoever compiled it";
  EXPECT_NE(loads_on(wide, "NULL:LLVM:x86_64,haswell").find("machine code that uses avx512"), std::string::npos)
      << loads_on(wide, "NULL:LLVM:x86_64,haswell");
  EXPECT_NE(loads_on(arm, "NULL:LLVM:x86_64,haswell").find("machine code that uses arm64"), std::string::npos);
}

TEST_F(JitFile, ModelsWithResultsThatAreWeights) {
  Tensor w = vec(1, 2);
  auto f = jit([=](const Tensor& x) { return std::vector<Tensor>{x * w, w, x}; });
  for (int i = 0; i < 2; i++) f(vec(3, 3));
  LoadedJit g = parse_jit(dump_jit(f.core()));
  Tensors r = g(vec(5, 5));
  EXPECT_EQ(floats(r[0]), (Floats{5, 10}));
  EXPECT_EQ(floats(r[1]), (Floats{1, 2}));
  EXPECT_EQ(floats(r[2]), (Floats{5, 5}));
}

}  // namespace
}  // namespace tg
