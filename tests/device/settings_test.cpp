/// \file Environment variables that no test of a part covers: each shows its effect, or says that it has none here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "device_facts.h"
#include "temp_dir.h"
#include "tinygrad/base/env.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/engine/validate.h"
#include "tinygrad/io/fetch.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

/// What is said on stderr meanwhile.
template <class F> std::string said(F&& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}
template <class F> std::string printed(F&& f) {
  ::testing::internal::CaptureStdout();
  try {
    f();
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}
Tensor numbers(int64_t n) { return (Tensor::arange(n) % 7).cast(dtypes::float32).contiguous().realize(); }
double sum_of(int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += static_cast<double>(i % 7);
  return s;
}

TEST(Settings, SplitReductionsGiveTheSameSums) {
  for (int64_t size : {0, 1, 2, 3, 4, 5, 8, 22, 62})
    for (int64_t threshold : {0, 1, 2, 100, 32768}) {
      const Context ctx{{"REDUCEOP_SPLIT_SIZE", size}, {"REDUCEOP_SPLIT_THRESHOLD", threshold}};
      SCOPED_TRACE(str("size ", size, ", threshold ", threshold));
      for (int64_t n : {1, 7, 256, 4099, 65536}) EXPECT_EQ(numbers(n).sum().item<float>(), sum_of(n)) << n;
      EXPECT_EQ(numbers(12).reshape(3, 4).sum(1).to_vector<float>(), (std::vector<float>{6, 15, 10}));
      EXPECT_EQ(numbers(12).reshape(3, 4).max().item<float>(), 6);
      EXPECT_EQ(numbers(6).reshape(2, 3).matmul(numbers(6).reshape(3, 2)).to_vector<float>(),
                (std::vector<float>{10, 13, 28, 40}));
    }
}

TEST(Settings, SplitReductionsAreMoreKernels) {
  if (env::EAGER) GTEST_SKIP() << "a kernel for every operation";
  const Tensor x = numbers(1 << 16);
  const auto kernels = [&](int64_t threshold) {
    const Context ctx{{"REDUCEOP_SPLIT_THRESHOLD", threshold}};
    GlobalCounters::reset();
    const int one = threshold > 1 << 15;  // not the same graph twice
    EXPECT_EQ((x + one).sum().item<float>(), sum_of(1 << 16) + static_cast<double>(one << 16));
    return GlobalCounters::kernels.load();
  };
  EXPECT_EQ(kernels(1 << 17), 1);
  EXPECT_EQ(kernels(1 << 10), 2);
}

TEST(Settings, OneBufferForAKernel) {
  const Tensor a = numbers(8), b = numbers(8) + 1, c = numbers(8) * 2;
  realize(a, b, c);
  const auto run = [&](int64_t most) {
    const Context ctx{{"MAX_KERNEL_BUFFERS", most}};
    GlobalCounters::reset();
    EXPECT_EQ(((a + b) * (c - a)).sum().item<float>(), 203);
    return GlobalCounters::kernels.load();
  };
  EXPECT_GT(run(1), run(0));
}

TEST(Settings, CapturingOffRunsEveryCall) {
  const Context off{{"CAPTURING", 0}};
  int calls = 0;
  auto f = jit([&](const Tensor& x) {
    calls++;
    return (x + 1).realize() * 2;
  });
  for (int i = 0; i < 4; i++) EXPECT_EQ(f(Tensor({float(i)}).realize()).item<float>(), 2 * (i + 1));
  EXPECT_EQ(calls, 4);
  EXPECT_FALSE(f.core().captured());
}

TEST(Settings, KernelsAreValidated) {
  const Context on{{"VALIDATE_WITH_CPU", 1}, {"SCACHE", 0}};
  const Tensor a = numbers(64).reshape(8, 8) - 3, b = numbers(64).reshape(8, 8) * 0.25;
  EXPECT_NO_THROW(a.matmul(b).softmax().sum().item<float>());
  EXPECT_NO_THROW((a.exp().sum(0) + b.max(1)).to_vector<float>());
  EXPECT_NO_THROW(a.cast(dtypes::float16).matmul(b.cast(dtypes::float16)).to_vector<float>());
  EXPECT_NO_THROW((a > 0).where(a.cast(dtypes::int32), 7).sort().first.to_vector<int>());
  Tensor w = numbers(8).contiguous().realize();
  EXPECT_NO_THROW(w.assign(w * 2 + 1).realize());
  EXPECT_EQ(w[3].item<float>(), 7);
  auto f = jit([](const Tensor& x) { return x.matmul(x).relu(); });
  for (int i = 0; i < 4; i++) EXPECT_NO_THROW(f((numbers(16).reshape(4, 4) + i).realize()).to_vector<float>());
}

TEST(Settings, ValidationNamesTheKernelThatDiffers) {
  if (env::EAGER) GTEST_SKIP() << "several runs";
  std::vector<RecordedRun> runs, *before = record_runs(&runs);
  Tensor y = (numbers(8) + 1).realize();
  record_runs(before);
  const RecordedRun& run = runs.back();
  const ScheduleCall& call = run.schedule->calls.back();
  std::vector<Buffer*> buffers;
  for (int32_t b : call.buffers) buffers.push_back(run.buffers[static_cast<size_t>(b)].get());
  EXPECT_FALSE(Validation::begin(call, buffers, {})) << "not asked for";
  const Context on{{"VALIDATE_WITH_CPU", 1}};
  auto again = Validation::begin(call, buffers, {});
  ASSERT_TRUE(again);
  EXPECT_NO_THROW(again->compare(*run.kernels.back()->program, buffers));
  std::vector<float> wrong{1, 2, 3, 4, 5, 6.5, 7, 1};
  buffers[0]->copy_in(std::as_bytes(std::span(wrong)));
  try {
    again->compare(*run.kernels.back()->program, buffers);
    FAIL() << "not noticed";
  } catch (const InternalError& e) {
    EXPECT_THAT(e.what(), HasSubstr("[VALIDATE_WITH_CPU] kernel " + run.kernels.back()->program->name));
    EXPECT_THAT(e.what(), HasSubstr("buffer 0 (float32, 8 elements): element 5 is 6.5, expected 6"));
  }
}

TEST(Settings, OptionsOfTheCompiler) {
  const auto with = [](const char* name, auto value) {
    const Context ctx{{name, value}};
    return CodegenOptions::from_env();
  };
  EXPECT_TRUE(with("NOOPT", 1).noopt);
  EXPECT_EQ(with("BEAM", 3).beam, 3);
  EXPECT_EQ(with("TC", 0).tensor_cores, 0);
  EXPECT_EQ(with("ROUND_PRODUCTS", 1).tensor_cores, 1);
  EXPECT_EQ(with("TC_SELECT", 2).tensor_core, 2);
  EXPECT_TRUE(with("NOLOCALS", 1).no_locals);
  EXPECT_EQ(with("TRANSCENDENTAL", 2).transcendental, 2);
  EXPECT_TRUE(with("RECIPROCAL_DIV", 1).reciprocal_division);
  EXPECT_TRUE(with("EMULATED_DTYPES", "float16").emulated.has(dtypes::float16));
  for (const char* name : {"NOOPT", "BEAM", "ROUND_PRODUCTS", "NOLOCALS", "RECIPROCAL_DIV"})
    EXPECT_NE(with(name, 1).hash(), CodegenOptions::from_env().hash()) << name;
}

TEST(Settings, InstructionThatTheTargetHasNot) {
  static int number = 200;
  const Context ctx{{"TC_SELECT", ++number}};
  clear_kernel_cache();
  EXPECT_THAT(said([] { EXPECT_EQ((numbers(5) * 3 + number).sum().item<float>(), 30 + 5 * number); }),
              HasSubstr(str("[TC_SELECT] got ", number, ", which is no instruction of ")));
}

TEST(Settings, SearchWhereKernelsCannotBeTimed) {
  static int width = 20;
  const Context ctx{{"BEAM", ++width}, {"CACHELEVEL", 0}};
  EXPECT_THAT(
      said([] { (Tensor::ones({4}, {.device = "INTERP"}).contiguous() + 1).realize(); }),
      HasSubstr(str("[BEAM] got ", width, " for INTERP, whose kernels cannot be timed here: the heuristic decides")));
}

class Search : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!searches_kernels()) GTEST_SKIP() << "BEAM searches compiled kernels of hosts only";
    if (env::EAGER) GTEST_SKIP() << "several kernels";
  }
  static Tensor factor() {
    const int64_t n = interprets_kernels() ? 48 : 160;
    return numbers(n * n).reshape(n, n).realize();
  }
  /// The output while one kernel is searched again, for as long as that takes here.
  static std::string search(std::initializer_list<Context::Setting> more) {
    const Tensor a = factor(), b = factor();
    const Context beam{{"BEAM", 2}, {"BEAM_CANDIDATES_MAX", 14}, {"BEAM_TIMEOUT_SEC", 1000}, {"IGNORE_BEAM_CACHE", 1}};
    const Context ctx(more);
    return printed([&] {
      clear_kernel_cache();
      clear_schedule_cache();
      a.matmul(b).realize();
    });
  }
};

TEST_F(Search, IsReported) {
  EXPECT_EQ(search({}), "");
  const std::string best = search({{"BEAM_DEBUG", 1}}), all = search({{"BEAM_DEBUG", 2}});
  EXPECT_THAT(best, HasSubstr("beam: round 1, "));
  EXPECT_GT(std::count(all.begin(), all.end(), '\n'), std::count(best.begin(), best.end(), '\n'));
}

TEST_F(Search, TriesNothingLargerThanItMay) {
  EXPECT_THAT(search({{"BEAM_DEBUG", 2}}), ::testing::AnyOf(HasSubstr("UPCAST"), HasSubstr("UNROLL")));
  EXPECT_THAT(search({{"BEAM_DEBUG", 2}, {"BEAM_UPCAST_MAX", 1}}),
              Not(::testing::AnyOf(HasSubstr("UPCAST"), HasSubstr("UNROLL"))));
  const std::string none = search({{"BEAM_DEBUG", 1}, {"BEAM_UOPS_MAX", 1}});
  EXPECT_THAT(none, ::testing::AnyOf("", HasSubstr(" 1 compiled"))) << "the heuristic's alone";
}

TEST_F(Search, StrictModeTellsOfCandidatesThatDoNotCompile) {
  const std::string clang = clang_path();
  if (clang.empty()) GTEST_SKIP() << "no clang that could fail";
  const testing::TempDir dir;
  const std::string compiler = dir / std::filesystem::path(clang).filename().string(), count = dir / "count";
  const auto run = [&](int strict) {
    // After the kernel a search begins with, the next three do not compile: candidates.
    std::ofstream(compiler) << "#!/bin/sh\ncase \"$*\" in *' -o '*) n=$(cat '" << count << "'); echo $((n + 1)) > '"
                            << count << "'; case $n in 1|2|3) exit 1;; esac;; esac\nexec '" << clang << "' \"$@\"\n";
    std::filesystem::permissions(compiler, std::filesystem::perms::owner_all);
    const Context ctx{
        {"DEV", "CPU:CLANG"}, {"CC", compiler}, {"CACHELEVEL", 0}, {"PARALLEL", 1}, {"BEAM_STRICT_MODE", strict}};
    std::ofstream(count) << "9\n";
    factor();  // its kernels are compiled
    std::ofstream(count) << "0\n";
    search({});
  };
  EXPECT_NO_THROW(run(0));
  EXPECT_THROW(run(1), CompileError);
}

TEST(Settings, DownloadsAgain) {
  const testing::TempDir dir;
  const std::string source = dir / "source.txt", kept = dir / "kept.txt", url = "file://" + source;
  const auto content = [&] {
    std::ostringstream s;
    s << std::ifstream(io::fetch(url, {.name = kept})).rdbuf();
    return s.str();
  };
  std::ofstream(source) << "first";
  EXPECT_EQ(content(), "first");
  std::ofstream(source) << "second";
  EXPECT_EQ(content(), "first") << "from the cache";
  const Context again{{"DISABLE_HTTP_CACHE", 1}};
  EXPECT_EQ(content(), "second");
}

}  // namespace
}  // namespace tg
