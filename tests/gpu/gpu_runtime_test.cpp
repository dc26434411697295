/// \file The runtimes of CUDA and AMD below tensors, over the fake drivers: loading, limits, shared memory, events,
/// graphs; every call of the driver failing in turn.
#include <numeric>

#include "fake_driver/program_image.h"
#include "gpu/fake_devices.h"
#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/cuda_driver.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/gpu_driver.h"
#include "tinygrad/runtime/hip_driver.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

constexpr int64_t kElements = 256;
constexpr size_t kBytes = kElements * sizeof(int);
const std::string kName = "add_by";

/// Returns the image of `to[i] = from[i] + by`.
fake::ProgramImage add_image() {
  Kernel k;
  k.arena = std::make_shared<Arena>();
  {
    ArenaScope scope(*k.arena);
    const auto param = [](int64_t slot) {
      return UOp::make(Ops::PARAM, dtypes::int32, {UOp::shape_stack(std::vector<int64_t>{kElements})},
                       Arg(ParamArg{slot, AddrSpace::kGlobal, "", "", 0, 0}));
    };
    const UOp by = UOp::variable("by", 0, 1000);
    const UOp i = UOp::range(kElements, 0);
    const UOp sum = param(1).index({i}).load() + by.cast(dtypes::int32);
    const UOp effect = param(0).index({i}).store(sum).end(UOps{i});
    KernelInfo info;
    info.name = kName;
    k.sink = UOp::sink(UOps{effect}, Arg(info));
    k.key = k.sink.key();
  }
  Target t;
  t.device = "CUDA";
  t.renderer = "FAKE";
  return fake::image_of(to_program(k, *make_renderer(t), {}));
}
const fake::ProgramImage& image() {
  static const fake::ProgramImage made = add_image();
  return made;
}
/// Returns what loaders get, for a kernel that declares so much shared memory.
std::vector<uint8_t> binary(int64_t shared_bytes = 0) {
  fake::ProgramImage out = image();
  out.shared_bytes = shared_bytes;
  return fake::write_image(out);
}

/// The arguments of a launch.
struct Arguments {
  std::vector<void*> buffers;
  int64_t by;
  LaunchArgs args;
  Arguments(void* to, void* from, int64_t n) : buffers{to, from}, by(n) {
    args.buffers = buffers.data();
    args.nbuffers = 2;
    args.vars = &by;
    args.nvars = 1;
    for (size_t d = 0; d < 3; d++) args.local[d] = image().group[d];
    args.global[0] = kElements / (args.local[0] * args.local[1] * args.local[2]);
  }
  Arguments(const Arguments&) = delete;
};

class GpuRuntime : public FakeGpu {
 protected:
  std::unique_ptr<Device> open(int index) const { return GetParam().device_kind().open(device(index)); }
  Context context_{{"DEV", language()}};
};

std::vector<int> counting() {
  std::vector<int> out(kElements);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// Everything that a device does, once: copies, launches, a graph that changes, events, peers.
std::vector<int> use_device(Device& d, bool graphs = true) {
  Allocator& memory = d.allocator().uncounted();
  struct Blocks {
    Allocator& memory;
    std::vector<void*> all;
    ~Blocks() {
      for (void* b : all) memory.free(b, kBytes);
    }
    void* add() {
      void* b = memory.allocate(kBytes);
      if (!b) throw OutOfMemoryError("no memory");
      all.push_back(b);
      return b;
    }
  };
  const std::vector<int> in = counting();
  // Where waiting fails, copies are still to come.
  static std::vector<std::unique_ptr<std::vector<int>>> kept;
  std::vector<int>& out = *kept.emplace_back(std::make_unique<std::vector<int>>(kElements));
  const auto pinned = d.make_staging_allocator();
  Blocks host{*pinned, {}}, blocks{memory, {}};
  void* staged = host.add();
  std::memcpy(staged, in.data(), kBytes);
  void *a = blocks.add(), *b = blocks.add(), *c = blocks.add();
  d.transfer_queue().copy_in({a, 0}, staged, kBytes);
  d.queue().wait_for(d.transfer_queue().record());
  const auto kernel = d.load(binary(), kName);
  const EventRef begin = d.queue().record();
  Arguments first(b, a, 1), second(c, b, 10);
  kernel->launch(first.args);
  if (graphs) {
    void* copies[] = {a, c};
    BatchCommand commands[3];
    commands[0].executable = commands[1].executable = kernel.get();
    commands[0].args = first.args;
    commands[1].args = second.args;
    commands[2].args.buffers = copies;
    commands[2].args.nbuffers = 2;
    commands[2].copy_bytes = kBytes;
    const std::unique_ptr<Batch> batch = d.record_batch(commands);
    const uint32_t all[] = {0, 1, 2}, one[] = {1};
    batch->submit(all);
    second.by = 100;
    batch->submit(one);
    batch->submit({});
  } else {
    kernel->launch(second.args);
    d.queue().copy({a, 0}, {c, 0}, kBytes);
  }
  const EventRef end = d.queue().record();
  d.transfer_queue().wait_for(end);
  d.transfer_queue().copy_out(out.data(), {a, 0}, kBytes);
  const EventRef copied = d.transfer_queue().record();
  copied->wait();
  end->done();
  if (const auto seconds = end->seconds_since(*begin)) EXPECT_GE(*seconds, 0);
  d.wait();
  return out;
}
/// 1 + 10 by the first submission, 1 + 100 by each of the two others.
std::vector<int> expected(bool graphs = true) {
  std::vector<int> out = counting();
  for (int& x : out) x += graphs ? 11 + 101 + 101 : 11;
  return out;
}

TEST_P(GpuRuntime, CopiesLaunchesAndGraphs) {
  for (const int index : {0, 1})
    for (const int delay : {0, 100}) {
      control().set_delay(delay);
      const auto d = open(index);
      EXPECT_EQ(use_device(*d), expected());
      EXPECT_EQ(use_device(*d, /*graphs=*/false), expected(false));
    }
}

/// Nothing may be left but HIP's devices, which nobody closes.
TEST_P(GpuRuntime, ReleasesEverything) {
  fake::Living before = control().living();
  use_device(*open(2));
  fake::Living after = control().living();
  before.contexts = after.contexts = 0;
  EXPECT_EQ(before, after);
}

/// Every call of the driver fails in turn: an error with a type, or none where the call does not matter, and nothing is
/// left.
TEST_P(GpuRuntime, EveryFailingCallIsATypedErrorAndNothingLeaks) {
  constexpr int kInvalidValue = 1, kOutOfMemory = 2, kLaunchFailed = 719;
  for (const int index : {0, 1}) {
    const size_t begin = control().count_calls("");
    use_device(*open(index));
    const size_t calls = control().count_calls("") - begin;
    ASSERT_GT(calls, 60u);
    int failures = 0;
    for (size_t n = 1; n <= calls; n++) {
      const int error = index == 0 ? kInvalidValue : n % 2 ? kOutOfMemory : kLaunchFailed;
      fake::Living before = control().living();
      control().fail_call("", static_cast<int>(n), error);
      const size_t at = control().count_calls("") + n - 1;
      std::string failure = "none";
      try {
        EXPECT_EQ(use_device(*open(index)), expected());
      } catch (const Error& e) {
        failure = e.what();
        failures++;
      }
      control().fail_call("", 0, 0);
      fake::Living after = control().living();
      before.contexts = after.contexts = 0;
      // What a failed call should have released stays, as with any driver.
      if (at >= control().count_calls("")) continue;  // waiting took fewer calls this time
      const std::string symbol = control().call(at);
      bool releases = symbol == "cuCtxSetCurrent" || symbol == "hipSetDevice";
      for (const char* verb : {"Free", "Destroy", "Unload", "Release"})
        releases |= symbol.find(verb) != std::string::npos;
      if (!releases) EXPECT_EQ(before, after) << "call " << n << ", " << symbol << ", failed with " << failure;
      control().take_violations();  // what the failed call should have waited for
    }
    EXPECT_GT(failures, static_cast<int>(calls) / 2);
  }
}

TEST_P(GpuRuntime, ErrorsNameTheCallTheDeviceAndTheCause) {
  const auto d = open(3);
  control().fail_call(GetParam().copy_in, 1, 1);
  const int value = 1;
  void* block = d->allocator().allocate(kBytes);
  EXPECT_THAT(test::error_text<DeviceError>([&] { d->queue().copy_in({block, 0}, &value, sizeof value); }),
              HasSubstr(str("[", GetParam().copy_in, "] ", device(3), ": FAKE_ERROR: some error")));
  const auto kernel = d->load(binary(), kName);
  Arguments a(block, block, 1);
  control().fail_call(GetParam().launch, 1, 1);
  EXPECT_THAT(test::error_text<DeviceError>([&] { kernel->launch(a.args); }),
              HasSubstr(str("[", GetParam().launch, "] ", device(3), ": kernel add_by, grid ")));
  d->allocator().free(block, kBytes);
}

TEST_P(GpuRuntime, LaunchesBeyondTheLimitsAreErrors) {
  const auto d = open(3);
  void* block = d->allocator().allocate(kBytes);
  const auto kernel = d->load(binary(), kName);
  const auto refused = [&](int64_t LaunchSize::*, auto&& change) {
    Arguments a(block, block, 1);
    change(a.args);
    return test::error_text<DeviceError>([&] { kernel->launch(a.args); });
  };
  EXPECT_THAT(refused(nullptr, [](LaunchArgs& a) { a.local[0] = 2048; }),
              HasSubstr("kernel add_by has 2048 threads along dimension 0 of a group, at most 1024 are possible"));
  EXPECT_THAT(refused(nullptr, [](LaunchArgs& a) { a.local[0] = a.local[1] = 64; }),
              HasSubstr("has 4096 threads in a group, at most 1024"));
  EXPECT_THAT(refused(nullptr, [](LaunchArgs& a) { a.global[1] = 65536; }),
              HasSubstr("has 65536 groups along dimension 1 of its grid, at most 65535"));
  EXPECT_THAT(refused(nullptr, [](LaunchArgs& a) { a.shared_bytes = 1 << 20; }),
              HasSubstr("has 1048576 bytes of shared memory, at most "));
  Arguments nothing(block, block, 1);
  nothing.args.global[0] = 0;
  const size_t before = control().count_calls(GetParam().launch);
  kernel->launch(nothing.args);
  EXPECT_EQ(control().count_calls(GetParam().launch), before) << "an empty grid";
  d->allocator().free(block, kBytes);
}

TEST_P(GpuRuntime, MoreSharedMemoryThanKernelsDeclareIsAskedFor) {
  const auto d = open(3);
  void *a = d->allocator().allocate(kBytes), *b = d->allocator().allocate(kBytes);
  const auto in = counting();
  d->queue().copy_in({a, 0}, in.data(), kBytes);
  const int64_t most = kind() == "CUDA" ? 200 << 10 : 64 << 10;
  for (const int64_t bytes : {int64_t{16} << 10, int64_t{48} << 10, most}) {
    const auto kernel = d->load(binary(bytes), kName);
    Arguments x(b, a, 5);
    x.args.shared_bytes = bytes;
    kernel->launch(x.args);
    unsigned grid[3], block[3], dynamic = 0;
    control().last_launch(grid, block, &dynamic);
    EXPECT_EQ(dynamic, kind() == "CUDA" && bytes > 48 << 10 ? bytes : 0) << "declared ones are there already";
    EXPECT_EQ(grid[0], static_cast<unsigned>(x.args.global[0]));
    EXPECT_EQ(block[0], static_cast<unsigned>(x.args.local[0]));
    d->queue().wait();
  }
  d->allocator().free(a, kBytes);
  d->allocator().free(b, kBytes);
}

/// Kernels are made for all the memory that a group can ask for, not for what it has without.
TEST_P(GpuRuntime, TargetsHaveTheSharedMemoryThatCanBeAskedFor) {
  EXPECT_EQ(open(3)->target().shared_bytes, (kind() == "CUDA" ? 227 : 64) << 10);
}

TEST_P(GpuRuntime, AGraphWithAnEmptyGridIsLaunchedOneByOne) {
  const auto d = open(3);
  void *a = d->allocator().allocate(kBytes), *b = d->allocator().allocate(kBytes);
  const auto in = counting();
  d->queue().copy_in({a, 0}, in.data(), kBytes);
  const auto kernel = d->load(binary(), kName);
  Arguments x(b, a, 1), y(b, b, 2);
  BatchCommand commands[2];
  commands[0].executable = commands[1].executable = kernel.get();
  commands[0].args = x.args;
  commands[1].args = y.args;
  const auto batch = d->record_batch(commands);
  const size_t graphs = control().count_calls(GetParam().launch_graph);
  std::vector<int> out(kElements);
  const auto run = [&](int64_t groups) {
    commands[1].args.global[0] = groups;
    const uint32_t changed[] = {0, 1};
    batch->submit(changed);
    d->queue().copy_out(out.data(), {b, 0}, kBytes);
    d->queue().wait();
    return out[7];
  };
  EXPECT_EQ(run(0), 8);
  EXPECT_EQ(control().count_calls(GetParam().launch_graph), graphs);
  EXPECT_EQ(run(y.args.global[0]), 10);
  EXPECT_EQ(run(0), 8);
  EXPECT_EQ(run(y.args.global[0]), 10);
  EXPECT_EQ(control().count_calls(GetParam().launch_graph), graphs + 2);
  d->allocator().free(a, kBytes);
  d->allocator().free(b, kBytes);
}

TEST_P(GpuRuntime, BytesThatAreNoProgramAreFormatErrors) {
  const auto d = open(3);
  const std::vector<uint8_t> nonsense(100, 'x');
  EXPECT_THAT(test::error_text<FormatError>([&] { d->load(nonsense, kName); }), HasSubstr("kernel add_by"));
  EXPECT_THAT(test::error_text<FormatError>([&] { d->load(std::span<const uint8_t>(), kName); }),
              HasSubstr("got no bytes for add_by"));
  EXPECT_THAT(test::error_text<FormatError>([&] { d->load(binary(), "other"); }),
              HasSubstr("got a program without a kernel other"));
}

TEST_P(GpuRuntime, TargetsHaveTheFiguresOfTheDevice) {
  const auto d = open(3);
  const Target& t = d->target();
  EXPECT_EQ(t.device, kind());
  EXPECT_EQ(t.renderer, "FAKE");
  EXPECT_EQ(t.arch, kind() == "CUDA" ? "sm_90a" : "gfx942");
  EXPECT_EQ(t.cores, kind() == "CUDA" ? 132 : 304);
  EXPECT_EQ(t.group_threads, 1024);
  EXPECT_EQ(t.grid_limit[1], 65535);
  EXPECT_EQ(&t, &d->target());
  const Context other{{"DEV", kind() + ":FAKE:" + (kind() == "CUDA" ? "sm_80" : "gfx1100")}};
  EXPECT_EQ(d->target().arch, kind() == "CUDA" ? "sm_80" : "gfx1100");
}

TEST_P(GpuRuntime, DevicesAreDescribedAndCounted) {
  EXPECT_THAT(GetParam().device_kind().describe(), HasSubstr("Fake GPU 0 ("));
  EXPECT_THAT(test::error_text<DeviceError>([&] { open(1000); }), HasSubstr("found 16 " + kind() + " devices"));
}

TEST(GpuDriver, SaysWhatIsMissing) {
  EXPECT_THAT(test::error_text<DeviceError>([] { open_cuda_driver("libNoCuda.so.1"); }),
              HasSubstr("found no libNoCuda.so.1, NVIDIA's driver"));
  EXPECT_THAT(test::error_text<DeviceError>([] { open_cuda_driver("libm.so.6"); }),
              HasSubstr("libm.so.6 has no function cuInit, expected a driver of CUDA 12 or newer"));
  EXPECT_THAT(test::error_text<DeviceError>([] { open_hip_driver("libNoHip.so"); }),
              HasSubstr("found no libNoHip.so, AMD's HIP runtime"));
  EXPECT_THAT(test::error_text<DeviceError>([] { open_hip_driver("libm.so.6"); }),
              HasSubstr("has no function hipInit, expected HIP of ROCm 6 or newer"));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, GpuRuntime, testing::Values(kFakeCuda, kFakeAmd), vendor_name);

}  // namespace tg
