/// \file The WEBGPU device below tensors: what is missing, targets, launching, copies of any bytes, events, and every
/// error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/webgpu_device.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

TEST(WebGpuLibrary, SaysWhatIsMissing) {
  EXPECT_THAT(test::error_text<DeviceError>([] { webgpu::open_library({"libNoWebGpu.so"}); }),
              HasSubstr("found no libNoWebGpu.so, the WebGPU library: WEBGPU_PATH names its file or folder"));
  EXPECT_THAT(test::error_text<DeviceError>([] { webgpu::open_library({}); }),
              HasSubstr("found no library in WEBGPU_PATH"));
  EXPECT_THAT(test::error_text<DeviceError>([] { webgpu::open_library({"libm.so.6"}); }),
              HasSubstr("libm.so.6 has no function wgpuCreateInstance"));
}

TEST(WebGpuLibrary, IsLookedForInFoldersAndEnvironments) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / "tg_webgpu_library";
  fs::remove_all(root);
  const fs::path wheel = root / "lib/python3.11/site-packages/wgpu/resources";
  fs::create_directories(wheel);
  std::ofstream(wheel / "libwgpu_native-release.so") << "x";
  std::ofstream(wheel / "webgpu.h") << "x";
  const std::string file = (wheel / "libwgpu_native-release.so").string();
  {
    const Context c{{"WEBGPU_PATH", wheel.string()}};
    EXPECT_EQ(webgpu::library_files(), std::vector<std::string>{file});
  }
  {
    const Context c{{"WEBGPU_PATH", "/elsewhere/lib.so"}};
    EXPECT_EQ(webgpu::library_files(), std::vector<std::string>{"/elsewhere/lib.so"});
  }
  const Context c{{"WEBGPU_PATH", ""}};
  const char* before = std::getenv("VIRTUAL_ENV");
  const std::string kept = before ? before : "";
  setenv("VIRTUAL_ENV", root.c_str(), 1);
  EXPECT_THAT(webgpu::library_files(), ::testing::Contains(file));
  EXPECT_THAT(webgpu::library_files(), ::testing::Contains("libwebgpu_dawn.so"));
  if (before) setenv("VIRTUAL_ENV", kept.c_str(), 1);
  else unsetenv("VIRTUAL_ENV");
  fs::remove_all(root);
}

TEST(WebGpuTarget, HasTheLimitsOfTheAdapter) {
  webgpu::Adapter a;
  a.name = "test";
  a.limits.group_bytes = 20 << 10;
  a.limits.group_threads = 512;
  a.limits.group_x = 512;
  a.limits.group_z = 32;
  a.limits.groups = 1000;
  const Target t = webgpu_target(a, "WGSL", "");
  EXPECT_EQ(t.shared_bytes, 20 << 10);
  EXPECT_EQ(t.group_threads, 512);
  EXPECT_EQ(t.group_limit[2], 32);
  EXPECT_EQ(t.grid_limit[0], 1000);
  EXPECT_THAT(test::error_text<DeviceError>([&] { webgpu_target(a, "LLVM", ""); }),
              HasSubstr("[DEV] WEBGPU has no renderer 'LLVM', expected WGSL"));
  EXPECT_THAT(test::error_text<DeviceError>([&] { webgpu_target(a, "", "sm_90"); }), HasSubstr("expected nothing"));
}

/// Adds a variable to integers, each of two threads of a group one.
constexpr const char* kAddOne = R"(// add_one buffers 256 variables 1
struct Given { zero: u32, offset0: i32, by: i32, by_high: i32 }
@group(0) @binding(0) var<uniform> given: Given;
@group(0) @binding(1) var<storage, read_write> data0: array<i32>;
@compute @workgroup_size(2)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  data0[given.offset0 / 4 + i32(id.x)] += given.by;
}
)";

class WebGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = &Device::get("WEBGPU");
    } catch (const DeviceError& e) { GTEST_SKIP() << e.what(); }
  }
  Device& device() { return *device_; }
  Queue& queue() { return device_->queue(); }
  std::shared_ptr<Executable> load(const std::string& source, const std::string& name) {
    return device().load(device().compiler().compile_cached(source), name);
  }
  struct Launch : LaunchArgs {
    void* block;
    int64_t offset = 0, by = 1;
    explicit Launch(void* b) : block(b) {
      buffers = &block;
      offsets = &offset;
      nbuffers = 1;
      vars = &by;
      nvars = 1;
    }
  };

 private:
  Device* device_ = nullptr;
};

TEST_F(WebGpu, LaunchesWithOffsetsAndVariables) {
  const auto kernel = load(kAddOne, "add_one");
  std::vector<int> host(128);
  std::iota(host.begin(), host.end(), 0);
  void* block = device().allocator().allocate(512);
  queue().copy_in({block, 0}, host.data(), 512);
  Launch args(block);
  args.offset = 12;  // bindings begin at multiples of some 32 bytes
  args.by = 1000;
  args.global[0] = 5;
  kernel->launch(args);
  const EventRef behind = queue().record();
  std::vector<int> out(60);
  queue().copy_out(out.data(), {block, 16}, 240);
  queue().wait();
  EXPECT_TRUE(behind->done());
  EXPECT_NO_THROW(behind->wait());
  for (int i = 0; i < 60; i++) EXPECT_EQ(out[static_cast<size_t>(i)], i + 4 + (i + 4 < 13 ? 1000 : 0)) << i;
  device().allocator().free(block, 512);
}

TEST_F(WebGpu, CopiesBytesAnywhere) {
  constexpr size_t kBytes = 61;  // no whole words
  void *a = device().allocator().allocate(kBytes), *b = device().allocator().allocate(kBytes);
  std::vector<uint8_t> want(kBytes), got(kBytes), in(kBytes);
  std::iota(want.begin(), want.end(), uint8_t{1});
  for (size_t begin : {0, 1, 4, 7})
    for (size_t n : {1, 3, 4, 8, 29, 50}) {
      queue().copy_in({a, 0}, want.data(), kBytes);
      std::iota(in.begin(), in.end(), static_cast<uint8_t>(100 + n));
      std::vector<uint8_t> expected = want;
      std::copy_n(in.begin(), n, expected.begin() + static_cast<long>(begin));
      queue().copy_in({a, begin}, in.data(), n);
      queue().copy_out(got.data(), {a, 0}, kBytes);
      queue().wait();
      ASSERT_EQ(got, expected) << begin << " " << n;
      queue().copy_in({b, 0}, want.data(), kBytes);
      queue().copy({b, 2}, {a, begin}, n);  // to another block
      queue().copy_out(got.data(), {b, 2}, n);
      queue().wait();
      ASSERT_TRUE(std::equal(in.begin(), in.begin() + static_cast<long>(n), got.begin())) << begin << " " << n;
      if (begin + n + 3 > 32 || n > 20) continue;
      queue().copy({a, 33}, {a, begin}, n);  // within a block
      queue().copy_out(got.data(), {a, 33}, n);
      queue().wait();
      ASSERT_TRUE(std::equal(in.begin(), in.begin() + static_cast<long>(n), got.begin())) << begin << " " << n;
    }
  device().allocator().free(a, kBytes);
  device().allocator().free(b, kBytes);
}

TEST_F(WebGpu, CommandsAreInOrderAndTimed) {
  const auto kernel = load(kAddOne, "add_one");
  void* block = device().allocator().allocate(256);
  Launch args(block);
  args.global[0] = 32;
  const EventRef first = queue().record();
  for (int round = 0; round < 20; round++) {
    std::vector<int> in(64, round), out(64);
    queue().copy_in({block, 0}, in.data(), 256);
    for (int i = 0; i < 300; i++) kernel->launch(args);  // more arguments than a submission holds
    queue().copy_out(out.data(), {block, 0}, 256);
    queue().wait();
    ASSERT_EQ(out, std::vector<int>(64, round + 300));
  }
  const EventRef last = queue().record();
  last->wait();
  if (const auto seconds = last->seconds_since(*first)) {
    EXPECT_GT(*seconds, 0);
    EXPECT_LT(*seconds, 600);
  }
  device().allocator().free(block, 256);
}

TEST_F(WebGpu, ErrorsHaveTypes) {
  Compiler& compiler = device().compiler();
  EXPECT_THAT(test::error_text<CompileError>([&] { compiler.compile("fn main() { nonsense; }"); }),
              HasSubstr("nonsense"));
  EXPECT_THAT(test::error_text<FormatError>([&] { device().load(std::vector<uint8_t>{1, 2, 3, 4}, "f"); }),
              HasSubstr("got bytes that are no kernel"));
  EXPECT_THAT(test::error_text<FormatError>([&] { device().load(std::vector<uint8_t>{}, "f"); }),
              HasSubstr("got no bytes for f"));
  EXPECT_THAT(test::error_text<FormatError>([&] { load(kAddOne, "add_two"); }),
              HasSubstr("got the kernel add_one, expected add_two"));
  const std::string text = "// f buffers 4 variables 0\nfn other() {}";
  EXPECT_THAT(
      test::error_text<FormatError>([&] { device().load(std::vector<uint8_t>(text.begin(), text.end()), "f"); }),
      HasSubstr("kernel f: "));
  EXPECT_THAT(test::error_text<OutOfMemoryError>([&] { device().allocator().allocate(size_t{1} << 50); }),
              HasSubstr("WEBGPU: got 1125899906842624 bytes, a buffer has at most"));
  EXPECT_THAT(test::error_text<DeviceError>([&] { device().source_compiler(device().target()); }),
              HasSubstr("got a kernel in C for WEBGPU: write it in UOps"));
  // None of them fails the device.
  EXPECT_NO_THROW(queue().wait());
}

TEST_F(WebGpu, LaunchesBeyondTheLimitsAreRefused) {
  const auto kernel = load(kAddOne, "add_one");
  void* block = device().allocator().allocate(256);
  Launch args(block);
  args.global[1] = 1 << 20;
  EXPECT_THAT(test::error_text<DeviceError>([&] { kernel->launch(args); }),
              HasSubstr("kernel add_one has 1048576 groups along dimension 1 of the grid, at most"));
  args.global[1] = 1;
  args.nvars = 0;
  EXPECT_THAT(test::error_text<DeviceError>([&] { kernel->launch(args); }),
              HasSubstr("has 1 buffers and 1 variables, got 1 and 0"));
  args.nvars = 1;
  args.offset = 1024;
  EXPECT_THAT(test::error_text<DeviceError>([&] { kernel->launch(args); }), HasSubstr("an offset of 1024"));
  EXPECT_NO_THROW(queue().wait());
  device().allocator().free(block, 256);
}

TEST_F(WebGpu, AProcessorIsNoGpu) {
  if (!webgpu::find_adapter().processor) GTEST_SKIP() << "the adapter is a GPU";
  try {
    EXPECT_NE(Device::canonical("GPU"), "WEBGPU");
  } catch (const DeviceError& e) { EXPECT_THAT(e.what(), HasSubstr("is a processor, WEBGPU names it")); }
}

TEST_F(WebGpu, LimitsReachTheScheduler) {
  EXPECT_GE(device_traits("WEBGPU").kernel_buffers, 8);
  EXPECT_FALSE(device_traits("WEBGPU:1").row_kernels);
}

/// What was lost stays so; other devices of the process go on.
TEST_F(WebGpu, ADeviceThatIsLostIsAnError) {
  auto* context = new WebGpuContext(webgpu::find_adapter(), "WEBGPU:7");  // lives as long as the library calls it
  auto* lost = new WebGpuQueue(*context);
  WebGpuBlock block{context->create_buffer(64, webgpu::buffer_usage::kStorage | webgpu::buffer_usage::kCopyTarget |
                                                   webgpu::buffer_usage::kCopySource),
                    64};
  const std::vector<char> bytes(64, 1);
  lost->copy_in({&block, 0}, bytes.data(), 64);
  lost->wait();
  const EventRef event = lost->record();
  context->f.DeviceDestroy(context->device);
  std::string what;
  std::vector<char> out(64);
  for (int i = 0; i < 2; i++) {
    EXPECT_THAT(test::error_text<DeviceError>([&] {
                  lost->copy_out(out.data(), {&block, 0}, 64);
                  lost->wait();
                }),
                HasSubstr("WEBGPU:7 has failed: "));
  }
  EXPECT_TRUE(event->done());
  EXPECT_THROW(lost->record(), DeviceError);
  EXPECT_NO_THROW(queue().wait());
}
}  // namespace
}  // namespace tg
