/// \file The OpenCL device below tensors: what is missing, targets, compiling, memory, queues, and every error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>

#include "helpers/error_text.h"
#include "kernels.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/opencl_device.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

TEST(OpenClLibrary, SaysWhatIsMissing) {
  EXPECT_THAT(test::error_text<DeviceError>([] { open_opencl("libNoOpenCL.so.1"); }),
              HasSubstr("found no libNoOpenCL.so.1, the OpenCL loader"));
  EXPECT_THAT(test::error_text<DeviceError>([] { open_opencl("libm.so.6"); }),
              HasSubstr("has no function clGetPlatformIDs"));
  EXPECT_EQ(opencl_error_name(CL_INVALID_WORK_GROUP_SIZE), "CL_INVALID_WORK_GROUP_SIZE");
  EXPECT_EQ(opencl_error_name(-9999), "error -9999");
  EXPECT_THAT(test::error_text<DeviceError>([] { check_opencl(CL_OUT_OF_RESOURCES, "clFinish", "CL:2"); }),
              HasSubstr("[clFinish] CL:2: CL_OUT_OF_RESOURCES"));
}

TEST(OpenClLibrary, KnowsWhichPoclMisreadsBooleans) {
  const auto pocl = [](const std::string& llvm) {
    return pocl_misreads_booleans("OpenCL 3.0 PoCL 3.1+debian  Linux, None+Asserts, RELOC, SPIR" + llvm);
  };
  EXPECT_FALSE(pocl(", LLVM 12.0.1, SLEEF"));
  for (const char* llvm : {", LLVM 13.0.0, SLEEF", ", LLVM 15.0.6, SLEEF", ", LLVM 17.0.6"}) EXPECT_TRUE(pocl(llvm));
  for (const char* llvm : {", LLVM 18.1.8, SLEEF", "", ", LLVM ", ", LLVM git"}) EXPECT_FALSE(pocl(llvm)) << llvm;
  EXPECT_FALSE(pocl_misreads_booleans("OpenCL 3.0 LLVM 15.0.6"));
}

OpenClDevice described(cl_device_type type) {
  OpenClDevice d;
  d.name = "test";
  d.type = type;
  d.fma = true;
  d.lanes = 16;
  d.units = 4;
  d.group_threads = 512;
  d.local_bytes = 32 << 10;
  return d;
}

TEST(OpenClTarget, ProcessorsHaveLanesAndGpusGroups) {
  const Target processor = opencl_target(described(CL_DEVICE_TYPE_CPU), "", ""),
               gpu = opencl_target(described(CL_DEVICE_TYPE_GPU), "OPENCL", "");
  EXPECT_FALSE(processor.has("workgroups"));
  EXPECT_EQ(processor.vector_bytes, 64);
  EXPECT_LE(processor.l2_bytes, 32 << 10);  // panels are in the group's memory
  EXPECT_TRUE(gpu.has("workgroups"));
  EXPECT_EQ(gpu.group_threads, 512);
  EXPECT_EQ(gpu.shared_bytes, 32 << 10);
  EXPECT_FALSE(gpu.has("fp16"));
  EXPECT_EQ(processor.has("x86_64"), host_processor().arch == "x86_64");
  EXPECT_TRUE(opencl_target(described(CL_DEVICE_TYPE_CPU), "", "workgroups").has("workgroups"));
  EXPECT_FALSE(opencl_target(described(CL_DEVICE_TYPE_GPU), "", "lanes").has("workgroups"));
  EXPECT_NE(processor.key(), opencl_target(described(CL_DEVICE_TYPE_CPU), "", "workgroups").key());
}

TEST(OpenClTarget, SaysWhatDevCanName) {
  EXPECT_THAT(test::error_text<DeviceError>([] { opencl_target(described(CL_DEVICE_TYPE_GPU), "LLVM", ""); }),
              HasSubstr("[DEV] CL has no renderer 'LLVM', expected OPENCL"));
  EXPECT_THAT(test::error_text<DeviceError>([] { opencl_target(described(CL_DEVICE_TYPE_GPU), "", "sm_90"); }),
              HasSubstr("got CL:OPENCL:sm_90, expected workgroups or lanes"));
}

class OpenCl : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = &Device::get("CL");
    } catch (const DeviceError& e) { GTEST_SKIP() << e.what(); }
  }
  Device& device() { return *device_; }
  std::shared_ptr<Executable> load(const std::string& source, const std::string& name) {
    return device().load(device().compiler().compile_cached(source), name);
  }

 private:
  Device* device_ = nullptr;
};

constexpr const char* kAddOne = R"(
__kernel void add_one(__global char* memory0, const long offset0, const long by) {
  __global int* data0 = (__global int*)(memory0 + offset0);
  data0[get_global_id(0)] += by;
}
)";

TEST_F(OpenCl, LaunchesWithOffsetsAndVariables) {
  const auto kernel = load(kAddOne, "add_one");
  std::vector<int> host(64);
  std::iota(host.begin(), host.end(), 0);
  void* block = device().allocator().allocate(256);
  device().queue().copy_in({block, 0}, host.data(), 256);
  LaunchArgs args;
  const int64_t offset = 12, by = 1000;  // no multiple of what sub-buffers would need
  args.buffers = &block;
  args.offsets = &offset;
  args.nbuffers = 1;
  args.vars = &by;
  args.nvars = 1;
  args.global[0] = 5;
  args.local[0] = 2;
  kernel->launch(args);
  const EventRef behind = device().queue().record();
  std::vector<int> out(60);
  device().queue().copy_out(out.data(), {block, 16}, 240);
  device().queue().wait();
  EXPECT_TRUE(behind->done());
  EXPECT_NO_THROW(behind->wait());
  for (int i = 0; i < 60; i++) EXPECT_EQ(out[static_cast<size_t>(i)], i + 4 + (i + 4 < 13 ? 1000 : 0)) << i;
  device().allocator().free(block, 256);
}

/// An item's comparisons are needed behind two barriers: PoCL keeps them as a vector of booleans.
constexpr const char* kBooleansBehindBarriers = R"(
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void booleans(__global char* memory0, __global char* memory1, const long offset0, const long offset1) {
  __global float* restrict out = (__global float*)(memory0 + offset0);
  __global const float* restrict in = (__global const float*)(memory1 + offset1);
  __local float firsts[16];
  int i = get_local_id(0);
  int8 below = vload8(i, in) < (float8)(-1.0f);
  firsts[i] = in[i * 8];
  barrier(CLK_LOCAL_MEM_FENCE);
  float t = firsts[15 - i];
  float sum = ((below.s0 ? 1.0f : t) * 2.0f + (below.s1 ? 1.0f : t)) * 2.0f + (below.s2 ? 1.0f : t);
  sum = sum * 2.0f + (below.s3 ? 1.0f : t);
  barrier(CLK_LOCAL_MEM_FENCE);
  sum = sum * 2.0f + (below.s4 ? 1.0f : t);
  sum = sum * 2.0f + (below.s5 ? 1.0f : t);
  sum = sum * 2.0f + (below.s6 ? 1.0f : t);
  out[i] = sum * 2.0f + (below.s7 ? 1.0f : t);
}
)";

TEST_F(OpenCl, BooleansAreKeptAcrossBarriers) {
  const auto kernel = load(kBooleansBehindBarriers, "booleans");
  std::mt19937 random(7);
  std::vector<float> in(128), out(16);
  for (float& x : in) x = static_cast<float>(random() % 16) - 8.0f;  // sums are exact
  void* blocks[] = {device().allocator().allocate(64), device().allocator().allocate(512)};
  device().queue().copy_in({blocks[1], 0}, in.data(), 512);
  LaunchArgs args;
  const int64_t offsets[] = {0, 0};
  args.buffers = blocks;
  args.offsets = offsets;
  args.nbuffers = 2;
  args.local[0] = 16;
  kernel->launch(args);
  device().queue().copy_out(out.data(), {blocks[0], 0}, 64);
  device().queue().wait();
  for (size_t i = 0; i < 16; i++) {
    float want = 0.0f;
    for (size_t j = 0; j < 8; j++) want = want * 2.0f + (in[i * 8 + j] < -1.0f ? 1.0f : in[(15 - i) * 8]);
    EXPECT_EQ(out[i], want) << i;
  }
  device().allocator().free(blocks[0], 64);
  device().allocator().free(blocks[1], 512);
}

TEST_F(OpenCl, QueuesWaitForEachOther) {
  Queue &kernels = device().queue(), &copies = device().transfer_queue();
  const auto kernel = load(kAddOne, "add_one");
  void* block = device().allocator().allocate(1 << 20);
  std::vector<int> in(1 << 18, 7), out(1 << 18);
  LaunchArgs args;
  const int64_t offset = 0, by = 1;
  args.buffers = &block;
  args.offsets = &offset;
  args.nbuffers = 1;
  args.vars = &by;
  args.nvars = 1;
  args.global[0] = 1 << 18;
  for (int round = 0; round < 20; round++) {
    copies.copy_in({block, 0}, in.data(), 1 << 20);
    kernels.wait_for(copies.record());
    kernel->launch(args);
    const EventRef done = kernels.record();
    copies.wait_for(done);
    copies.copy_out(out.data(), {block, 0}, 1 << 20);
    copies.wait();
    ASSERT_EQ(std::count(out.begin(), out.end(), 8), 1 << 18);
  }
  const EventRef first = kernels.record();
  kernel->launch(args);
  const EventRef last = kernels.record();
  last->wait();
  if (const auto seconds = last->seconds_since(*first)) EXPECT_GE(*seconds, 0);
  device().allocator().free(block, 1 << 20);
}

TEST_F(OpenCl, ProcessorsAreNoGpus) {
  if (!(opencl_devices().front().type & CL_DEVICE_TYPE_CPU)) GTEST_SKIP() << "there is a GPU";
  try {
    EXPECT_NE(Device::canonical("GPU"), "CL");
  } catch (const DeviceError& e) { EXPECT_THAT(e.what(), HasSubstr("is a processor, CL names it")); }
}

/// Launches a kernel that takes a while to compile and that no cache has, and ends the process meanwhile.
void launch_and_exit(Device& device, int milliseconds) {
  std::string lines = str("float x = ", std::random_device{}(), ", y = 0;\n");
  for (int i = 0; i < 400; i++)
    lines += str("for (int j = 0; j < 9; j++) if (x > y) { y = x / ", i + 2, "; x += j; }\n");
  const std::string source = "__kernel void f(__global float* p, const long at) {\n" + lines + "p[at] = x;\n}\n";
  const auto kernel = device.load(device.compiler().compile_cached(source), "f");
  void* block = device.allocator().allocate(64);
  LaunchArgs args;
  const int64_t offset = 0;
  args.buffers = &block;
  args.offsets = &offset;
  args.nbuffers = 1;
  kernel->launch(args);
  device.queue().flush();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  std::exit(0);
}

TEST_F(OpenCl, ExitWaitsForKernels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(launch_and_exit(device(), 50), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(launch_and_exit(device(), 150), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(launch_and_exit(device(), 300), ::testing::ExitedWithCode(0), "");
}

TEST_F(OpenCl, ErrorsHaveTypes) {
  Compiler& compiler = device().compiler();
  EXPECT_THAT(test::error_text<CompileError>([&] { compiler.compile("__kernel void f() { nonsense; }"); }),
              HasSubstr("nonsense"));
  EXPECT_THAT(test::error_text<FormatError>([&] { device().load(std::vector<uint8_t>{1, 2, 3, 4}, "f"); }),
              HasSubstr("got bytes that are no program of"));
  EXPECT_THAT(test::error_text<FormatError>([&] { device().load(std::vector<uint8_t>{}, "f"); }),
              HasSubstr("got no bytes"));
  EXPECT_THAT(test::error_text<FormatError>([&] { load(kAddOne, "add_two"); }), HasSubstr("without a kernel add_two"));
  EXPECT_THAT(test::error_text<OutOfMemoryError>([&] { device().allocator().allocate(size_t{1} << 50); }),
              HasSubstr("CL"));
  EXPECT_THAT(test::error_text<DeviceError>([&] { device().source_compiler(device().target()); }),
              HasSubstr("got a kernel in C for CL: write it in UOps"));
  EXPECT_THAT(test::error_text<DeviceError>([] { Device::get("CL:77"); }), HasSubstr("got CL:77, found"));
}

TEST_F(OpenCl, GroupsBeyondTheLimitsAreRefused) {
  const auto kernel = load(kAddOne, "add_one");
  LaunchArgs args;
  args.local[1] = int64_t{1} << 40;
  EXPECT_THAT(test::error_text<DeviceError>([&] { kernel->launch(args); }),
              HasSubstr("kernel add_one has 1099511627776 threads along dimension 1 of a group, at most"));
}

/// What kernels call is declared in front of them, in both forms; sources of others get clang's header.
TEST_F(OpenCl, KernelsNeedNoHeader) {
  auto& compiler = dynamic_cast<OpenClCompiler&>(device().compiler());
  const int64_t before = compiler.header_needed();
  const auto kernels = testing::all_kernels();
  for (const char* dev : {"CL:OPENCL:lanes", "CL:OPENCL:workgroups"}) {
    const Context form{{"DEV", dev}};
    const auto renderer = make_renderer(device().target());
    for (size_t i = 0; i < kernels.size(); i += 7) {
      const auto program = to_program(*kernels[i].second(), *renderer, CodegenOptions());
      compiler.compile(program->source);
      EXPECT_EQ(compiler.header_needed(), before) << kernels[i].first << "\n" << program->source;
    }
  }
  compiler.compile("__kernel void f(__global float* p) { p[0] = tgamma(p[1]); }");
  EXPECT_LE(compiler.header_needed(), before + 1);
}

TEST_F(OpenCl, BinariesAreCached) {
  const std::string source = std::string(kAddOne) + "// a text of its own\n";
  const std::vector<uint8_t> first = device().compiler().compile_cached(source);
  EXPECT_EQ(first, device().compiler().compile_cached(source));
  EXPECT_THAT(device().compiler().cache_key(), HasSubstr("-cl-std=CL1.2"));
}
}  // namespace
}  // namespace tg
