/// \file Counters of what ran, settings that are part of cache keys, and replays that run out of memory.
#include "tinygrad/engine/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tinygrad/base/env.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

Tensor stored(int64_t n, float v) {
  return Tensor::from(std::vector<float>(static_cast<size_t>(n), v), Shape{n}).realize();
}

TEST(Counters, CountWhatRan) {
  const Tensor a = stored(1000, 1), b = stored(1000, 2);
  GlobalCounters::reset();
  (a + b).realize();
  EXPECT_EQ(GlobalCounters::kernels, 1);
  EXPECT_EQ(GlobalCounters::runs, 1);
  EXPECT_EQ(GlobalCounters::copies, 0);
  EXPECT_GE(GlobalCounters::ops, 1000);
  EXPECT_LT(GlobalCounters::ops, 1100);
  EXPECT_EQ(GlobalCounters::mem, 3 * 4000);
  EXPECT_GT(GlobalCounters::run_ns, 0);
  EXPECT_GT(GlobalCounters::compile_ns, 0);
  EXPECT_EQ(GlobalCounters::nanoseconds, 0) << "not measured";
  {
    const Context timed{{"PROFILE", 1}};
    (a * b).realize();
  }
  EXPECT_GT(GlobalCounters::nanoseconds, 0);
  GlobalCounters::reset();
  EXPECT_EQ(GlobalCounters::kernels + GlobalCounters::ops + GlobalCounters::run_ns + GlobalCounters::disk_hits, 0);
}

TEST(Counters, KernelsOfSymbolicSizesComeFromTheDisk) {
  if (!env::CCACHE || Device::default_name() != "CPU") GTEST_SKIP() << "nothing is kept on the disk";
  const Tensor x = Tensor::arange(1 << 20).to_float().reshape(1 << 10, 1 << 10).realize();
  const auto sums = [&](int64_t n) {  // the loop over rows is divided among threads
    const BoundVariable rows = Variable("rows", 2, 1 << 10).bind(n);
    const Tensor y = x.shrink(std::vector<std::pair<SInt, SInt>>{{0, rows}, {0, 1 << 10}});
    return (y * 0.0009765625).sum(1).sum().item<float>();
  };
  const float expected = sums(100);
  clear_kernel_cache();
  clear_schedule_cache();
  GlobalCounters::reset();
  EXPECT_EQ(sums(100), expected);
  EXPECT_EQ(GlobalCounters::compiled, 0);
  EXPECT_GT(GlobalCounters::disk_hits, 0);
  EXPECT_GT(sums(900), expected);
}

TEST(Counters, EverySettingThatChangesCodeIsPartOfTheKey) {
  const Hash128 plain = codegen_settings_hash();
  for (const Context::Setting& s :
       {Context::Setting("NOOPT", env::NOOPT ? 0 : 1), Context::Setting("BEAM", 3),
        Context::Setting("TRANSCENDENTAL", 2), Context::Setting("EMULATED_DTYPES", "float16"),
        Context::Setting("CC", "clang-999"), Context::Setting("TG_LLVM_PLUGIN", "/elsewhere")}) {
    const Context changed{s};
    EXPECT_NE(codegen_settings_hash(), plain) << s.name;
  }
  EXPECT_EQ(codegen_settings_hash(), plain);
}

TEST(Counters, SchedulesAreKnownByStructure) {
  const Context lazy{{"EAGER", 0}, {"SCACHE", 1}};
  clear_schedule_cache();
  const auto hit = [](int64_t n, const char* setting = "SPLIT_REDUCEOP", int64_t value = 1) {
    const Context c{{setting, value}};
    return (stored(n, 1) * 3 + stored(n, 2)).sum().schedule().cache_hit;
  };
  EXPECT_FALSE(hit(77));
  EXPECT_TRUE(hit(77)) << "other tensors";
  EXPECT_FALSE(hit(78)) << "another size";
  EXPECT_FALSE(hit(77, "SPLIT_REDUCEOP", 0)) << "another setting";
  EXPECT_FALSE(hit(77, "SCACHE", 0)) << "turned off";
  EXPECT_TRUE(hit(77));
  for (int64_t n = 100; n < 1200; n++) hit(n);
  EXPECT_FALSE(hit(77)) << "the oldest have gone";
}

TEST(Counters, AReplayWithoutMemory) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  free_memory_caches();
  const int64_t n = int64_t{1} << 20;
  auto f = jit([](const Tensor& x) { return ((x + 1).contiguous() * x.sum()).contiguous().sum(); });
  const auto input = [&](float v) { return stored(n, v); };
  for (int i = 0; i < 3; i++) EXPECT_EQ(f(input(0)).item<float>(), 0);
  f.core().free_intermediates();
  free_memory_caches();
  const Tensor x = input(1.f / 1024);
  const float expected = (static_cast<float>(n) + 1024) * 1024;
  {
    const Context limit{{"MEMORY_LIMIT", 5}};
    std::string what;
    try {
      f(x);
    } catch (const OutOfMemoryError& e) { what = e.what(); }
    if (f.core().replay()->planned_bytes() > n)
      EXPECT_THAT(what, testing::HasSubstr("(4194304 bytes) (1048576,) float32"));
  }
  EXPECT_NEAR(f(x).item<float>(), expected, expected * 1e-5);
}

}  // namespace
}  // namespace tg
