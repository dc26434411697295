/// \file From source to running kernels: LLVM plugin, clang, disk cache, loading, launching.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "temp_dir.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/dtype.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/host_compilers.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace tg {
namespace {

/// out[i] = a[i] * a[i] + constant for blocks [begin, end) of 16 floats.
std::string square_ir(const char* name, const char* constant) {
  return std::string("define void @") + name + R"((ptr noalias %bufs, ptr noalias %vars, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %bufs
  %p1 = getelementptr ptr, ptr %bufs, i64 1
  %in = load ptr, ptr %p1
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = mul i64 %i, 16
  %a = getelementptr float, ptr %in, i64 %at
  %v = load <16 x float>, ptr %a, align 4
  %m = fmul <16 x float> %v, %v
  %c0 = insertelement <16 x float> poison, float )" +
         constant + R"(, i64 0
  %c = shufflevector <16 x float> %c0, <16 x float> poison, <16 x i32> zeroinitializer
  %w = fadd <16 x float> %m, %c
  %b = getelementptr float, ptr %out, i64 %at
  store <16 x float> %w, ptr %b, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
)";
}

std::string function_ir(const std::string& body, const std::string& declarations = "") {
  return declarations + "\ndefine void @k(ptr %bufs, ptr %vars, i64 %begin, i64 %end) {\n  %b = load ptr, ptr %bufs\n" +
         body + "  ret void\n}\n";
}

Device& cpu() { return Device::get("CPU"); }

void launch(Executable& e, std::vector<void*> buffers, std::vector<int64_t> vars = {}, int64_t extent = 1,
            int max_threads = 0) {
  LaunchArgs args;
  args.buffers = buffers.data();
  args.nbuffers = static_cast<int>(buffers.size());
  args.vars = vars.data();
  args.nvars = static_cast<int>(vars.size());
  args.thread_extent = extent;
  args.max_threads = max_threads;
  e.launch(args);
}

template <class E> std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "";
}

struct Llvm : ::testing::Test {
  void SetUp() override {
    if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  }
  TempDir dir{"tg_cache"};
  Context context{
      {"DEV", "CPU:LLVM"}, {"CACHEDB", (dir.path() / "cache.db").string()}, {"CACHELEVEL", 2}, {"CCACHE", 1}};
  Compiler& compiler = cpu().compiler();
};

TEST_F(Llvm, CompilesAndRuns) {
  auto kernel = cpu().load(compiler.compile(square_ir("square", "1.0")), "square");
  std::vector<float> in(16 * 10), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) / 8;
  launch(*kernel, {out.data(), in.data()}, {}, 10);
  for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i] * in[i] + 1) << i;
  std::fill(out.begin(), out.end(), -1.0f);
  ASSERT_NE(kernel->host_kernel(), nullptr);
  void* buffers[] = {out.data(), in.data()};
  kernel->host_kernel()(buffers, nullptr, 2, 4);
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(out[i], i / 16 == 2 || i / 16 == 3 ? in[i] * in[i] + 1 : -1) << "only the range it was given";
  EXPECT_EQ(llvm_plugin_info().opened, true);
  EXPECT_GE(std::stoi(llvm_plugin_info().version), 17);
}

TEST_F(Llvm, ThreadsGiveTheSameResult) {
  auto kernel = cpu().load(compiler.compile(square_ir("square", "0.5")), "square");
  std::vector<float> in(16 * 1000), one(in.size()), many(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i));
  launch(*kernel, {one.data(), in.data()}, {}, 1000, 1);
  launch(*kernel, {many.data(), in.data()}, {}, 1000, 4);
  EXPECT_EQ(one, many);
}

TEST_F(Llvm, VariablesAndLibraryCalls) {
  const std::string ir = function_ir(
      R"(  %x = load float, ptr %b
  %s = call float @llvm.sin.f32(float %x)
  %n = load i64, ptr %vars
  %p = getelementptr float, ptr %b, i64 %n
  store float %s, ptr %p
)",
      "declare float @llvm.sin.f32(float)");
  auto kernel = cpu().load(compiler.compile(ir), "k");
  float data[4] = {0.75f, 0, 0, 0};
  launch(*kernel, {data}, {2});
  EXPECT_EQ(data[2], std::sin(0.75f));
  EXPECT_EQ(data[1], 0);
}

TEST_F(Llvm, ConstantsFromMemory) {  // vector constants live in a read-only section and need relocations
  const std::string ir = function_ir(R"(  %x = load <4 x float>, ptr %b, align 4
  %y = fadd <4 x float> %x, <float 1.0, float 2.5, float -3.25, float 4.125>
  store <4 x float> %y, ptr %b, align 4
)");
  float data[4] = {1, 1, 1, 1};
  launch(*cpu().load(compiler.compile(ir), "k"), {data});
  EXPECT_EQ(std::vector<float>(data, data + 4), (std::vector<float>{2, 3.5f, -2.25f, 5.125f}));
}

TEST_F(Llvm, HalfConversionsOnTheBaseline) {  // no F16C there: calls to our conversion functions
  if (host_processor().arch != "x86_64") GTEST_SKIP() << "x86 only";
  Context baseline{{"DEV", "CPU:LLVM:x86_64"}};
  ASSERT_TRUE(cpu().target().features.empty());
  const std::string ir = function_ir(R"(  %x = load float, ptr %b
  %h = fptrunc float %x to half
  %p = getelementptr half, ptr %b, i64 2
  store half %h, ptr %p
  %e = fpext half %h to float
  %q = getelementptr float, ptr %b, i64 2
  store float %e, ptr %q
  %d = fpext float %x to double
  %dh = fptrunc double %d to half
  %r = getelementptr half, ptr %b, i64 6
  store half %dh, ptr %r
  %dw = fpext half %dh to double
  %s = getelementptr double, ptr %b, i64 2
  store double %dw, ptr %s
)");
  auto kernel = cpu().load(cpu().compiler().compile(ir), "k");
  for (float x : {0.0f, 1.0f, -2.5f, 0.1f, 65504.0f, 65520.0f, 6e-8f, 1e-9f, -1e30f}) {
    alignas(16) char data[32] = {};
    std::memcpy(data, &x, 4);
    launch(*kernel, {data});
    uint16_t half, from_double;
    float wide;
    double wide_double;
    std::memcpy(&half, data + 4, 2);
    std::memcpy(&wide, data + 8, 4);
    std::memcpy(&from_double, data + 12, 2);
    std::memcpy(&wide_double, data + 16, 8);
    EXPECT_EQ(half, float_to_half(x)) << x;
    EXPECT_EQ(wide, half_to_float(half)) << x;
    EXPECT_EQ(from_double, half) << x;
    EXPECT_EQ(wide_double, half_to_float(half)) << x;
  }
}

TEST_F(Llvm, NoFastMath) {
  // (x + 1e8) - 1e8 must not be folded, x * y + z must not be fused.
  const std::string ir = function_ir(R"(  %x = load float, ptr %b
  %s = fadd float %x, 1.0e8
  %t = fsub float %s, 1.0e8
  store float %t, ptr %b
  %p = getelementptr float, ptr %b, i64 1
  %y = load float, ptr %p
  %m = fmul float %y, %y
  %z = fsub float %m, 1.0
  store float %z, ptr %p
)");
  float data[2] = {1.25f, 1.0f + 0x1p-12f};
  launch(*cpu().load(compiler.compile(ir), "k"), {data});
  volatile float product = (1.0f + 0x1p-12f) * (1.0f + 0x1p-12f);
  EXPECT_EQ(data[0], 0.0f);
  EXPECT_EQ(data[1], product - 1.0f);
}

TEST_F(Llvm, ErrorsAreCompileErrors) {
  EXPECT_NE(message<CompileError>([&] { compiler.compile("define void @k() { nonsense }"); }).find("nonsense"),
            std::string::npos);
  EXPECT_FALSE(message<CompileError>([&] { compiler.compile(""); }).empty() &&
               message<FormatError>([&] { cpu().load(compiler.compile(""), "k"); }).empty());
  // Well-formed text that the verifier refuses: a branch of a definition that does not dominate its use.
  const std::string bad =
      "define i32 @k(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n  "
      "ret i32 %x\n}\n";
  EXPECT_FALSE(message<CompileError>([&] { compiler.compile(bad); }).empty());
  // Functions outside the closed list do not load.
  const std::string calls = function_ir("  call void @system(ptr %b)\n", "declare void @system(ptr)");
  EXPECT_NE(message<FormatError>([&] { cpu().load(compiler.compile(calls), "k"); }).find("undefined symbol system"),
            std::string::npos);
  EXPECT_NE(message<FormatError>([&] { cpu().load(compiler.compile(function_ir("")), "other"); }).find("other"),
            std::string::npos);
}

TEST_F(Llvm, WhatTheTargetCannotDoDoesNotEndTheProcess) {
  if (host_processor().arch != "x86_64") GTEST_SKIP() << "x86 only";
  Context baseline{{"DEV", "CPU:LLVM:x86_64"}};
  const std::string ir = function_ir(
      R"(  %x = load <16 x float>, ptr %b, align 4
  %y = call <16 x float> @llvm.x86.avx512.rcp14.ps.512(<16 x float> %x, <16 x float> %x, i16 -1)
  store <16 x float> %y, ptr %b, align 4
)",
      "declare <16 x float> @llvm.x86.avx512.rcp14.ps.512(<16 x float>, <16 x float>, i16)");
#if defined(__SANITIZE_ADDRESS__)
  __lsan::ScopedDisabler what_llvm_held_is_left;  // its state is unknown after a fatal error
#endif
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(message<CompileError>([&] { cpu().compiler().compile(ir); }).find("LLVM: "), std::string::npos);
  EXPECT_FALSE(cpu().compiler().compile(square_ir("square", "1.0")).empty()) << "and the next kernel compiles";
}

TEST_F(Llvm, CompilesInParallel) {
  std::vector<std::thread> threads;
  std::vector<float> results(8);
  const env::Snapshot snapshot;
  for (size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&, t] {
      env::Adopt adopt(snapshot);
      std::vector<float> in(16, 2.0f), out(16);
      for (int i = 0; i < 5; ++i) {
        const std::string name = "k" + std::to_string(t);
        launch(*cpu().load(compiler.compile(square_ir(name.c_str(), (std::to_string(t) + ".0").c_str())), name),
               {out.data(), in.data()});
      }
      results[t] = out[7];
    });
  for (auto& t : threads) t.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], 4.0f + static_cast<float>(t));
}

TEST_F(Llvm, AssemblyIsReadable) {
  const std::string text = compiler.assembly(square_ir("square", "1.0"));
  EXPECT_NE(text.find("square:"), std::string::npos);
  EXPECT_NE(text.find("ret"), std::string::npos);
  if (cpu().target().vector_bytes == 64) EXPECT_NE(text.find("zmm"), std::string::npos) << text;
}

TEST_F(Llvm, WidthFollowsTheTarget) {
  if (host_processor().arch != "x86_64") GTEST_SKIP() << "x86 only";
  auto assembly = [](const char* dev) {
    Context c{{"DEV", dev}};
    return Device::get("NULL").compiler().assembly(square_ir("square", "1.0"));
  };
  const std::string sse = assembly("NULL:LLVM:x86_64"), avx = assembly("NULL:LLVM:x86_64,haswell"),
                    wide = assembly("NULL:LLVM:x86_64,znver4");
  EXPECT_EQ(sse.find("ymm"), std::string::npos);
  EXPECT_EQ(sse.find("vmulps"), std::string::npos);
  EXPECT_NE(avx.find("ymm"), std::string::npos);
  EXPECT_EQ(avx.find("zmm"), std::string::npos);
  EXPECT_NE(wide.find("zmm"), std::string::npos);
}

// ---- the disk cache ----

std::string cache_entry_key(const Compiler& c, const std::string& source) {
  Hash128 hash;
  hash.add(c.cache_key());
  hash.add(source);
  return hash.to_hex();
}

TEST_F(Llvm, CacheHitReturnsTheSameBytes) {
  const std::string source = square_ir("cached", "3.0");
  EXPECT_FALSE(disk_cache::get(compiler.cache_table(), cache_entry_key(compiler, source)));
  const auto first = compiler.compile_cached(source);
  const auto stored = disk_cache::get(compiler.cache_table(), cache_entry_key(compiler, source));
  ASSERT_TRUE(stored);
  EXPECT_EQ(*stored, first);
  EXPECT_EQ(compiler.compile_cached(source), first);
  Context off{{"CCACHE", 0}};
  EXPECT_EQ(compiler.compile_cached(source), first) << "compilation is deterministic";
}

TEST_F(Llvm, CorruptEntryIsCompiledAgain) {
  const std::string source = square_ir("square", "7.0"), key = cache_entry_key(compiler, source),
                    table = compiler.cache_table();
  const auto good = compiler.compile_cached(source);
  std::vector<std::vector<uint8_t>> bad = {
      {}, {1, 2, 3}, std::vector<uint8_t>(good.begin(), good.begin() + static_cast<long>(good.size()) / 2), good};
  bad[3][16] = 3;  // another file type
  for (const auto& bytes : bad) {
    disk_cache::put(table, key, bytes);
    EXPECT_EQ(compiler.compile_cached(source), good);
    EXPECT_EQ(*disk_cache::get(table, key), good) << "and stored again";
  }
}

TEST_F(Llvm, KeyDependsOnTheTarget) {
  const std::string native = compiler.cache_key();
  Context c{{"DEV", host_processor().arch == "x86_64" ? "CPU:LLVM:x86_64" : "NULL:LLVM:x86_64"}};
  EXPECT_NE(Device::get(Device::default_name()).compiler().cache_key(), native);
}

/// Run in a process of its own (see below): a kernel that is in the cache runs without the plugin.
TEST(CacheHitChild, DISABLED_RunsWithoutThePlugin) {
  Compiler& compiler = cpu().compiler();
  std::vector<float> in(16, 3.0f), out(16);
  launch(*cpu().load(compiler.compile_cached(square_ir("square", "5.0")), "square"), {out.data(), in.data()});
  EXPECT_EQ(out[3], 14.0f);
  EXPECT_FALSE(llvm_plugin_info().opened);
}

TEST_F(Llvm, CacheHitDoesNotOpenThePlugin) {
  compiler.compile_cached(square_ir("square", "5.0"));
  ProcessOptions options;
  options.env = {
      {"DEV", "CPU:LLVM"}, {"CACHEDB", (dir.path() / "cache.db").string()}, {"CACHELEVEL", "2"}, {"CCACHE", "1"}};
  const ProcessResult result = run_process({executable_path().string(), "--gtest_also_run_disabled_tests",
                                            "--gtest_filter=CacheHitChild.DISABLED_RunsWithoutThePlugin"},
                                           options);
  EXPECT_TRUE(result.ok()) << result.out << result.err;
  EXPECT_NE(result.out.find("1 test from"), std::string::npos) << result.out;
}

TEST(LlvmMissing, SaysWhatToInstall) {
  TempDir dir("tg_plugin");
  Context c{{"TG_LLVM_PLUGIN", (dir.path() / "none.so").string()}, {"DEV", "CPU:LLVM"}};
  if (!llvm_plugin_info().opened) {
    const std::string what = message<CompileError>([] { cpu().compiler().compile(square_ir("square", "1.0")); });
    EXPECT_NE(what.find("llvm-19-dev"), std::string::npos) << what;
    EXPECT_NE(what.find("none.so"), std::string::npos) << what;
  }
}

// ---- clang ----

struct Clang : ::testing::Test {
  void SetUp() override {
    if (clang_path().empty()) GTEST_SKIP() << "no clang";
  }
  Context context{{"DEV", "CPU:CLANG"}};
  Compiler& compiler = cpu().compiler();
};

TEST_F(Clang, CompilesAndRuns) {
  const std::string source = R"(
static const float table[5] = {1.0f, 2.0f, 4.0f, 8.0f, 16.0f};
float sinf(float);
void k(void* const* restrict buffers, const long long* restrict vars, long long begin, long long end) {
  float* restrict out = (float*)buffers[0];
  for (long long i = begin; i < end; i++) out[i] = sinf(out[i]) * table[i % 5] + (float)vars[1];
}
)";
  auto kernel = cpu().load(compiler.compile(source), "k");
  std::vector<float> data(1000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) / 100;
  launch(*kernel, {data.data()}, {0, 3}, 1000, 2);
  for (size_t i = 0; i < data.size(); ++i) {
    volatile float product = std::sin(static_cast<float>(i) / 100) * static_cast<float>(1 << i % 5);
    ASSERT_EQ(data[i], product + 3.0f) << i;
  }
}

TEST_F(Clang, LoopsThatBecomeLibraryCalls) {  // clang turns these into memset and memcpy
  const std::string source = R"(
void k(void* const* buffers, const long long* vars, long long begin, long long end) {
  char* restrict out = (char*)buffers[0]; const char* restrict in = (const char*)buffers[1];
  for (long long i = 0; i < vars[0]; i++) out[i] = 0;
  for (long long i = vars[0]; i < vars[1]; i++) out[i] = in[i];
}
)";
  std::vector<char> out(5000, 'x'), in(5000, 'y');
  launch(*cpu().load(compiler.compile(source), "k"), {out.data(), in.data()}, {2000, 4000});
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1999], 0);
  EXPECT_EQ(out[2000], 'y');
  EXPECT_EQ(out[4000], 'x');
}

TEST_F(Clang, ErrorsCarryTheMessage) {
  const std::string what = message<CompileError>([&] { compiler.compile("void k(void) { undeclared_thing++; }"); });
  EXPECT_NE(what.find("undeclared_thing"), std::string::npos) << what;
  EXPECT_NE(what.find("error:"), std::string::npos) << what;
  Context missing{{"CC", "no-such-compiler"}};
  EXPECT_NE(message<CompileError>([&] { compiler.compile("int x;"); }).find("no-such-compiler"), std::string::npos);
}

TEST_F(Clang, AnotherCompilerIsPassedOver) {
  const std::string clang = clang_path();
  const testing::TempDir dir;
  const std::string other = dir / "cc", renamed = dir / "c99";
  const auto write = [](const std::string& file, const std::string& version) {
    std::ofstream(file) << "#!/bin/sh\necho '" << version << "'\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  };
  write(other, "cc (Debian 12.2.0) 12.2.0");
  write(renamed, "Debian clang version 19.1.7");
  {
    const Context ctx{{"CC", other}};
    EXPECT_EQ(clang_path(), clang);
  }
  const Context ctx{{"CC", renamed}};
  EXPECT_EQ(clang_path(), renamed);
}

TEST_F(Clang, Assembly) {
  EXPECT_NE(compiler.assembly("int forty_two(void) { return 42; }").find("forty_two:"), std::string::npos);
}

TEST(NullDevice, RunsNothing) {
  Context c{{"DEV", "NULL"}};
  Device& device = Device::get();
  EXPECT_EQ(device.name(), "NULL");
  int untouched = 5;
  void* buffers[] = {&untouched};
  LaunchArgs args;
  args.buffers = buffers;
  device.load(std::vector<uint8_t>{}, "k")->launch(args);
  EXPECT_EQ(untouched, 5);
  EXPECT_FALSE(device.host_visible());
}

}  // namespace
}  // namespace tg
