/// \file The runtime of METAL below tensors: messages and their types, memory, kernels, queues, and every error.
#include <numeric>
#include <sstream>
#include <thread>

#include "fake_metal/objc_encoding.h"
#include "helpers/error_text.h"
#include "metal/fake_metal_library.h"
#include "tinygrad/base/context.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/metal_device.h"
#include "unit/kernels.h"

namespace tg {
namespace {
using test::error_text;
using test::FakeMetal;
using ::testing::HasSubstr;

TEST(MetalLibrary, SaysWhatIsMissing) {
  EXPECT_THAT(error_text<DeviceError>([] { open_metal("libNoMetal.so"); }),
              HasSubstr("found no libNoMetal.so: METAL needs macOS"));
  EXPECT_THAT(error_text<DeviceError>([] { open_metal("libm.so.6"); }),
              HasSubstr("libm.so.6 has no function objc_getClass"));
#ifndef __APPLE__
  EXPECT_THAT(error_text<DeviceError>([] { open_metal(""); }),
              HasSubstr("found no /usr/lib/libobjc.A.dylib: METAL needs macOS"));
#endif
}

/// Every message has the types of its method, in whichever class: a wrong one would be found in a user's hands only.
TEST(MetalLibrary, MessagesHaveTheTypesOfTheirMethods) {
  const fake_metal::Control& control = test::fake_metal_control();
  const auto check = [&](const char* selector, const std::string& types) {
    std::istringstream methods(control.types_of(selector));
    int found = 0;
    for (std::string class_name, rest; methods >> class_name && std::getline(methods, rest); found++)
      EXPECT_EQ(rest.substr(rest.rfind(' ') + 1), types) << class_name << " " << selector;
    EXPECT_GT(found, 0) << selector;
  };
#define TG_CHECK_TYPES(member, selector, ...) check(selector, fake_objc::SignatureEncoding<__VA_ARGS__>::text());
  TG_METAL_MESSAGES(TG_CHECK_TYPES)
#undef TG_CHECK_TYPES
}

/// The types as Apple's headers declare them, for the messages that pass more than objects and NSUIntegers.
TEST(MetalLibrary, TypesAreThoseOfAppleHeaders) {
  const auto types = [](const std::string& selector) {
    std::string found;
#define TG_FIND_TYPES(member, name, ...) \
  if (selector == name) found = fake_objc::SignatureEncoding<__VA_ARGS__>::text();
    TG_METAL_MESSAGES(TG_FIND_TYPES)
#undef TG_FIND_TYPES
    return found;
  };
  EXPECT_EQ(types("dispatchThreadgroups:threadsPerThreadgroup:"), "v@:{?=QQQ}{?=QQQ}");
  EXPECT_EQ(types("concurrentDispatchThreadgroups:threadsPerThreadgroup:"), "v@:{?=QQQ}{?=QQQ}");
  EXPECT_EQ(types("executeCommandsInBuffer:withRange:"), "v@:@{_NSRange=QQ}");
  EXPECT_EQ(types("setBytes:length:atIndex:"), "v@:r^vQQ");
  EXPECT_EQ(types("useResources:count:usage:"), "v@:r^@QQ");
  EXPECT_EQ(types("newLibraryWithSource:options:error:"), "@@:@@^@");
  EXPECT_EQ(types("newComputePipelineStateWithDescriptor:options:reflection:error:"), "@@:@Q^@^@");
  EXPECT_EQ(types("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:"), "v@:@Q@QQ");
  EXPECT_EQ(types("encodeWaitForEvent:value:"), "v@:@Q");
  EXPECT_EQ(types("GPUStartTime"), "d@:");
  EXPECT_EQ(types("supportsFamily:"), "B@:q");
  EXPECT_EQ(types("setMathMode:"), "v@:q");
  EXPECT_EQ(types("stringWithUTF8String:"), "@@:r*");
  EXPECT_EQ(types("contents"), "^v@:");
}

// ---- devices ----

TEST(MetalDevices, AreListedTheDefaultFirst) {
  for (const DeviceInfo& d : Device::list())
    if (d.name == "METAL") {
      EXPECT_TRUE(d.available);
      EXPECT_THAT(d.note, ::testing::StartsWith("Fake M3; "));
      EXPECT_THAT(d.note, HasSubstr("Fake Radeon"));
    }
  const std::vector<MetalGpu> gpus = metal_gpus();
  EXPECT_EQ(std::count_if(gpus.begin(), gpus.end(), [](const MetalGpu& g) { return g.name == "Fake M3"; }), 1);
  EXPECT_THAT(error_text<DeviceError>([] { Device::get("METAL:99"); }), HasSubstr("got METAL:99, found"));
}

TEST(MetalDevices, SayThatThereIsNone) {
  const fake_metal::Control& control = test::fake_metal_control();
  control.fail_message("MTLCreateSystemDefaultDevice", 1);
  const std::vector<MetalGpu> listed = metal_gpus();
  EXPECT_EQ(listed.size(), static_cast<size_t>(control.living("MTLDevice"))) << "a Mac without a display";
  control.fail_message("MTLCreateSystemDefaultDevice", 1);
  control.fail_message("MTLCopyAllDevices", 1);
  EXPECT_THAT(error_text<DeviceError>([] { metal_gpus(); }), HasSubstr("[metal] found no GPU"));
}

MetalGpu gpu_called(const std::string& name) {
  for (MetalGpu& g : metal_gpus())
    if (g.name == name) return g;
  throw DeviceError("no " + name);
}

TEST(MetalDevices, TargetsHaveTheLimitsOfTheGpu) {
  const Target t = metal_target(gpu_called("Fake M1"), "", "");
  EXPECT_EQ(t.renderer, "METAL");
  EXPECT_EQ(t.arch, "apple7");
  EXPECT_EQ(t.cpu, "Fake M1");
  EXPECT_EQ(t.shared_bytes, 32 << 10);
  EXPECT_EQ(metal_target(gpu_called("Fake Radeon"), "METAL", "").arch, "mac");
  EXPECT_EQ(t.features, (std::vector<std::string>{"fma", "shuffles", "simdgroup"}));
  MetalGpu old = gpu_called("Fake M1");
  old.family = 1006;  // A13: MTLGPUFamilyApple6
  EXPECT_EQ(metal_target(old, "", "").features, (std::vector<std::string>{"fma", "shuffles"}));
  old.family = 1005;
  EXPECT_EQ(metal_target(old, "", "").features, std::vector<std::string>{"fma"});
  EXPECT_EQ(metal_target(gpu_called("Fake Radeon"), "", "").features, std::vector<std::string>{"fma"});
  EXPECT_TRUE(make_renderer(t)->has_locals());
  EXPECT_THAT(error_text<DeviceError>([] { metal_target(gpu_called("Fake M1"), "CUDA", ""); }),
              HasSubstr("[DEV] METAL has no renderer 'CUDA', expected METAL"));
  EXPECT_THAT(error_text<DeviceError>([] { metal_target(gpu_called("Fake M1"), "METAL", "apple9"); }),
              HasSubstr("got METAL:METAL:apple9, expected no architecture"));
}

TEST(MetalDevices, IndirectCommandsOnGpusThatRunThem) {
  EXPECT_TRUE(gpu_called("Fake M3").indirect_commands);
  EXPECT_TRUE(gpu_called("Fake M5").indirect_commands);
  for (const char* name : {"Fake M1", "Fake Radeon", "Fake virtual GPU"})
    EXPECT_FALSE(gpu_called(name).indirect_commands) << name;
}

TEST(MetalDevices, ThatGiveNoQueueAreAnError) {
  for (const char* message : {"newCommandQueueWithMaxCommandBufferCount:", "newSharedEvent"}) {
    test::fake_metal_control().fail_message(message, 1);
    EXPECT_THAT(error_text<DeviceError>([] { Device::get("METAL:6"); }), HasSubstr("[metal] METAL:6 gives no"))
        << message;
  }
  EXPECT_NO_THROW(Device::get("METAL:6"));
}

// ---- memory, kernels, queues ----

class MetalRuntime : public FakeMetal {
 protected:
  Device& device(const char* name = "METAL") { return Device::get(name); }
  /// A kernel of `n` groups of 4 threads; returns what compiles.
  std::string source(Device& d, const testing::KernelPtr& kernel) {
    const auto renderer = make_renderer(d.target());
    CodegenOptions options;
    const auto program = testing::check_kernel(kernel, *renderer, options);
    name_ = program->name;
    return program->source;
  }
  std::shared_ptr<Executable> load(Device& d, const testing::KernelPtr& kernel) {
    const std::string text = source(d, kernel);
    return d.load(d.compiler().compile(text), name_);
  }
  static BufferRef floats(const char* device, const std::vector<float>& values) {
    BufferRef b = Buffer::create(device, static_cast<int64_t>(values.size()), dtypes::float32);
    b->copy_in(std::as_bytes(std::span(values)));
    return b;
  }
  static std::vector<float> values_of(Buffer& b) {
    std::vector<float> out(static_cast<size_t>(b.size()));
    b.copy_out(std::as_writable_bytes(std::span(out)));
    return out;
  }
  std::string name_;  // of the kernel that was made last
};

TEST_F(MetalRuntime, ErrorsOfKernelsHaveTypes) {
  Device& d = device();
  const std::string good = source(d, testing::elementwise(4, 16));
  EXPECT_THAT(error_text<CompileError>([&] { d.compiler().compile("kernel void f() { nonsense; }"); }),
              HasSubstr("[compile] METAL, Fake M3: program_source:1:1: error"));
  EXPECT_THAT(error_text<FormatError>([&] { d.load(std::vector<uint8_t>{1, 2, 3}, "f"); }),
              HasSubstr("got bytes that are no kernel"));
  EXPECT_THAT(error_text<FormatError>([&] { d.load(std::vector<uint8_t>{0xff, 0xfe}, "f"); }),
              HasSubstr("got a source that is no UTF-8"));
  EXPECT_THAT(error_text<FormatError>([&] { d.load(std::vector<uint8_t>{}, "f"); }), HasSubstr("got no bytes"));
  const std::vector<uint8_t> binary = d.compiler().compile(good);
  EXPECT_THAT(error_text<FormatError>([&] { d.load(binary, "g"); }), HasSubstr("without a kernel g"));
  control.fail_message("newComputePipelineStateWithDescriptor:options:reflection:error:", 1);
  EXPECT_THAT(error_text<CompileError>([&] { d.load(binary, name_); }), HasSubstr("kernel " + name_));
  EXPECT_THAT(error_text<DeviceError>([&] { d.source_compiler(d.target()); }), HasSubstr("write it in UOps"));
  EXPECT_THAT(d.compiler().assembly(good), HasSubstr("no assembly"));
  EXPECT_NO_THROW(d.load(binary, name_));
}

TEST_F(MetalRuntime, LibrariesAreCompiledOnce) {
  Device& d = device();
  const std::string text = source(d, testing::elementwise(3, 5));
  const std::vector<uint8_t> binary = d.compiler().compile(text);
  control.fail_message("newLibraryWithSource:options:error:", 1);
  EXPECT_NO_THROW(d.load(binary, name_)) << "the library of compile()";
  EXPECT_THROW(d.load(binary, name_), FormatError) << "is handed out once; a file's is compiled again";
  EXPECT_NO_THROW(d.load(binary, name_));
}

TEST_F(MetalRuntime, GroupsBeyondTheLimitOfThePipelineAreRefused) {
  Device& d = device();
  const auto kernel = load(d, testing::elementwise(4, 16));
  LaunchArgs args;
  args.local[0] = 4096;
  EXPECT_THAT(error_text<DeviceError>([&] { kernel->launch(args); }),
              HasSubstr("kernel " + name_ + " has 4096 threads in a group, its pipeline runs at most"));
}

TEST_F(MetalRuntime, MemoryThatIsExhaustedIsATypedError) {
  Device& d = device();
  EXPECT_THAT(error_text<OutOfMemoryError>([&] { d.allocator().allocate(size_t{300} << 20); }),
              HasSubstr("[allocate] METAL: got 314572800 bytes, a buffer has at most 268435456"));
  EXPECT_THAT(error_text<OutOfMemoryError>([&] { d.allocator().allocate(size_t{1} << 40); }), HasSubstr("the limit"));
  for (int i = 0; i < 2; i++) {
    control.fail_message("newBufferWithLength:options:", 1);
    void* block = d.allocator().allocate(5000);  // tried again after caches are emptied
    d.allocator().free(block, 5000);
    free_memory_caches();
  }
  EXPECT_THROW(Buffer::create("METAL", int64_t{1} << 40, dtypes::float32)->ensure_allocated(), OutOfMemoryError);
}

TEST_F(MetalRuntime, CopiesOfAnyBytes) {
  std::vector<std::byte> bytes(4096);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<std::byte>(i * 7);
  const BufferRef a = Buffer::create("METAL", 4096, dtypes::uint8), b = Buffer::create("METAL", 4096, dtypes::uint8);
  a->copy_in(bytes);
  b->copy_in(bytes);
  device().transfer_queue().wait();  // commands given to a queue itself are not ordered with the buffers' copies
  Queue& queue = device().queue();
  std::vector<std::byte> want = bytes;
  for (const auto& [to, from, n] :
       {std::tuple<size_t, size_t, size_t>{0, 64, 128}, {201, 7, 33}, {301, 9, 4}, {402, 8, 6}}) {
    queue.copy({b->place().block, to}, {a->place().block, from}, n);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(from), n, want.begin() + static_cast<ptrdiff_t>(to));
  }
  std::vector<std::byte> got(4096);
  queue.copy_out(got.data(), {b->place().block, 0}, got.size());
  queue.wait();
  EXPECT_TRUE(got == want);
  queue.copy_in({b->place().block, 5}, bytes.data(), 11);
  std::copy_n(bytes.begin(), 11, want.begin() + 5);
  queue.copy_out(got.data(), {b->place().block, 0}, got.size());
  queue.record()->wait();
  EXPECT_TRUE(got == want);
  EXPECT_THAT(error_text<DeviceError>([&] { queue.copy({b->place().block, 4092}, {a->place().block, 0}, 8); }),
              HasSubstr("[copy] METAL: got bytes 4092 to 4100 of a buffer of 4096"));
  EXPECT_THROW(device().transfer_queue().copy_in({b->place().block, SIZE_MAX}, bytes.data(), 8), DeviceError);
}

TEST_F(MetalRuntime, QueuesWaitForEachOther) {
  Device& d = device();
  Queue &kernels = d.queue(), &copies = d.transfer_queue();
  const auto kernel = load(d, testing::elementwise(1, 256));
  const BufferRef a = Buffer::create("METAL", 256, dtypes::float32), b = Buffer::create("METAL", 256, dtypes::float32),
                  o = Buffer::create("METAL", 256, dtypes::float32);
  void* handles[] = {o->place().block, a->place().block, b->place().block};
  const int64_t offsets[] = {0, 0, 0};
  LaunchArgs args;
  args.buffers = handles;
  args.offsets = offsets;
  args.nbuffers = 3;
  const auto program = make_renderer(d.target());
  const auto p = to_program(*testing::elementwise(1, 256), *program, {});
  {
    ArenaScope scope(*p->arena);
    for (int i = 0; i < 3; i++) {
      if (p->global_size[i]) args.global[i] = static_cast<int64_t>(p->global_size[i].const_int());
      if (p->local_size[i]) args.local[i] = static_cast<int64_t>(p->local_size[i].const_int());
    }
  }
  std::vector<float> in(256), out(256);
  for (int round = 0; round < 20; round++) {
    std::fill(in.begin(), in.end(), static_cast<float>(round));
    for (const BufferRef& x : {a, b}) copies.copy_in({x->place().block, 0}, in.data(), 1024);
    kernels.wait_for(copies.record());
    kernel->launch(args);
    copies.wait_for(kernels.record());
    copies.copy_out(out.data(), {o->place().block, 0}, 1024);
    copies.wait();
    ASSERT_EQ(std::count(out.begin(), out.end(), static_cast<float>(round * round + round)), 256) << round;
  }
  const EventRef first = kernels.record();
  kernel->launch(args);
  const EventRef last = kernels.record();
  last->wait();
  EXPECT_TRUE(first->done() && last->done());
  EXPECT_GT(last->seconds_since(*first).value_or(-1), 0);
  EXPECT_EQ(last->seconds_since(*last), 0);
  const EventRef copied = copies.record();
  copied->wait();
  EXPECT_EQ(copied->seconds_since(*last), std::nullopt) << "clocks of two queues";
  EXPECT_GE(copies.record()->seconds_since(*copied).value_or(-1), 0);
}

TEST_F(MetalRuntime, NothingIsLeakedNorReleasedTwice) {
  const auto lives = [&] {
    std::map<std::string, int64_t> out;
    for (const char* c : {"MTLBuffer", "MTLCommandBuffer", "MTLComputeCommandEncoder", "MTLBlitCommandEncoder",
                          "NSString", "NSError", "NSArray", "MTLLibrary", "MTLFunction", "MTLComputePipelineState",
                          "MTLComputePipelineDescriptor", "MTLCompileOptions", "MTLIndirectCommandBuffer",
                          "MTLIndirectComputeCommand", "MTLIndirectCommandBufferDescriptor", "MTLSharedEvent"})
      out[c] = control.living(c);
    return out;
  };
  const auto work = [&] {
    const auto kernel = load(device(), testing::elementwise(4, 16));
    const BufferRef a = floats("METAL", std::vector<float>(64, 2)), b = floats("METAL", std::vector<float>(64, 3));
    EXPECT_EQ(values_of(*a)[5], 2);
    device().queue().copy(b->place(), a->place(), 256);
    device().queue().wait();
    EXPECT_EQ(values_of(*b)[5], 2);
    EXPECT_THROW(device().compiler().compile("nonsense"), CompileError);
    device().wait();
    free_memory_caches();
  };
  work();
  device().queue().wait();
  const auto before = lives();
  for (int i = 0; i < 3; i++) work();
  device().queue().wait();
  EXPECT_EQ(lives(), before);
}

/// The last command buffer stays with its queue.
TEST_F(MetalRuntime, ObjectsThatMetalDoesNotGiveAreErrors) {
  const BufferRef a = floats("METAL", {1, 2, 3, 4}), b = floats("METAL", {5, 6, 7, 8});
  device().wait();  // nothing else asks for objects then
  for (const char* message : {"commandBuffer", "blitCommandEncoder"}) {
    control.fail_message(message, 1);
    EXPECT_THAT(error_text<DeviceError>([&] { device().queue().copy(b->place(), a->place(), 16); }),
                HasSubstr("[metal] METAL gives no command"))
        << message;
  }
  device().queue().copy(b->place(), a->place(), 16);
  device().queue().wait();
  EXPECT_EQ(values_of(*b), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(MetalRuntime, AFailedCommandFailsTheDeviceAndNothingHangs) {
  const char* name = "METAL:5";
  const BufferRef a = floats(name, {1, 2}), b = floats(name, {3, 4}), other = floats("METAL", {5, 6});
  Device& d = device(name);
  d.wait();
  const EventRef before = d.queue().record();
  control.fail_commands(1);
  d.queue().copy(b->place(), a->place(), 8);
  const EventRef behind = d.queue().record();
  d.transfer_queue().wait_for(behind);
  float out = 0;
  d.transfer_queue().copy_out(&out, b->place(), 4);
  for (int i = 0; i < 2; i++)
    EXPECT_THAT(error_text<DeviceError>([&] { behind->wait(); }),
                HasSubstr("METAL:5 has failed: GPU error: Caused GPU Hang Error"));
  EXPECT_TRUE(behind->done());
  EXPECT_THAT(error_text<DeviceError>([&] { d.transfer_queue().wait(); }), HasSubstr("Caused GPU Hang Error"));
  EXPECT_THAT(error_text<DeviceError>([&] { d.queue().copy(b->place(), a->place(), 8); }), HasSubstr("Hang"));
  EXPECT_THROW(d.transfer_queue().copy_out(&out, b->place(), 4), DeviceError);
  EXPECT_THROW(before->wait(), DeviceError);
  EXPECT_THROW(d.wait(), DeviceError);
  EXPECT_EQ(values_of(*other), (std::vector<float>{5, 6})) << "another device";
}
}  // namespace
}  // namespace tg
