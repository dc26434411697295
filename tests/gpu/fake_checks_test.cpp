/// \file What the fake drivers find: a program that uses them wrongly is told so. Otherwise the other tests here would
/// say nothing.
#include "gpu/fake_devices.h"
#include "helpers/error_text.h"
#include "tinygrad/runtime/cuda_driver.h"
#include "tinygrad/runtime/gpu_device.h"
#include "tinygrad/runtime/hip_driver.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

class FakeChecks : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    driver_ = kind() == "CUDA" ? open_cuda_driver(TG_FAKE_CUDA) : open_hip_driver(TG_FAKE_HIP);
    context_ = std::make_unique<GpuContext>(*driver_, 12, "test");  // with pools
    context_->enter();
  }
  void TearDown() override {
    context_.reset();
    control().take_violations();
  }
  const GpuFunctions& f() const { return driver_->f; }
  void* compute() const { return context_->compute; }
  void* transfer() const { return context_->transfer; }
  void* block(size_t bytes = 64) const {
    void* out = nullptr;
    EXPECT_EQ(f().allocate(&out, bytes), 0);
    return out;
  }
  void expect(const char* what) const { EXPECT_THAT(control().take_violations(), HasSubstr(what)); }
  void expect_nothing() const { EXPECT_STREQ(control().take_violations(), ""); }
  char host_[64] = {};
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuContext> context_;
};

TEST_P(FakeChecks, StreamsInNoOrder) {
  void *a = block(), *b = block();
  f().copy_in(a, host_, 64, transfer());
  f().copy(b, a, 64, compute());
  expect("a copy reads memory that another stream writes, in no order");
  context_->order(transfer(), compute());
  f().copy_in(a, host_, 64, transfer());
  expect_nothing();
  f().copy(static_cast<char*>(b) + 32, a, 16, compute());
  expect("in no order");
}

TEST_P(FakeChecks, AnEventOrdersOnlyWhatWasBeforeIt) {
  void *a = block(), *b = block(), *event = nullptr;
  f().create_event(&event, 0);
  f().record_event(event, transfer());
  f().copy_in(a, host_, 64, transfer());
  f().wait_for_event(compute(), event, 0);
  f().copy(b, a, 64, compute());
  expect("in no order");
  f().destroy_event(event);
}

TEST_P(FakeChecks, WaitingOnTheHostOrders) {
  void *a = block(), *b = block();
  f().copy_in(a, host_, 64, transfer());
  f().synchronize_stream(transfer());
  f().copy(b, a, 64, compute());
  expect_nothing();
}

TEST_P(FakeChecks, MemoryThatIsFreed) {
  void *a = block(), *b = block();
  f().copy(b, a, 64, compute());
  f().release(a);
  expect("while commands may use it");
  f().copy(b, a, 64, compute());
  expect("uses memory that was freed");
  EXPECT_NE(f().release(a), 0);
  expect("freed memory twice");
  EXPECT_NE(f().release(host_), 0);
  expect("freed what is no memory");
}

TEST_P(FakeChecks, MemoryOfAPool) {
  void *a = nullptr, *b = block();
  f().allocate_async(&a, 64, context_->memory);
  f().copy(b, a, 64, compute());
  expect("does not wait for its memory to be allocated");
  f().release_async(a, context_->memory);
  expect("freed memory of a pool while commands may use it");
}

TEST_P(FakeChecks, CopiesBeyondTheEnd) {
  for (const bool beyond : {true, false}) {
    GpuContext failing(*driver_, beyond ? 13 : 15, "failing");
    failing.enter();
    void* a = block();
    f().copy_in(beyond ? static_cast<char*>(a) + 32 : host_, host_, 64, failing.compute);
    expect(beyond ? "a copy goes 32 bytes beyond its memory" : "uses an address without memory");
    EXPECT_EQ(f().synchronize_stream(failing.compute), 700);
  }
}

TEST_P(FakeChecks, ThingsOfAnotherDevice) {
  GpuContext other(*driver_, 14, "other");
  context_->enter();
  void* event = nullptr;
  f().create_event(&event, 0);
  EXPECT_NE(f().record_event(event, other.compute), 0);
  expect("a stream of device 14 while 12 is current");
  f().destroy_event(event);
}

TEST_P(FakeChecks, ThingsThatAreDestroyed) {
  void* event = nullptr;
  f().create_event(&event, 0);
  f().destroy_event(event);
  f().record_event(event, compute());
  expect("a event that was destroyed");
  EXPECT_NE(f().record_event(host_, compute()), 0);
  expect("a handle of no event");
}

TEST_P(FakeChecks, TensorMaps) {
  void* memory = block(1 << 20);
  TensorMap map{.slot = 1, .itemsize = 2, .width = 512, .height = 64, .box_width = 64, .box_height = 64};
  if (kind() == "AMD") {
    EXPECT_THAT(test::error_text<DeviceError>([&] { (void)driver_->encode_map(*context_, map, memory); }),
                HasSubstr("[launch] test has no tensor maps"));
    return;
  }
  const auto encode = [&](void* address) {
    return test::error_text<DeviceError>([&] { (void)driver_->encode_map(*context_, map, address); });
  };
  const GpuTensorMap made = driver_->encode_map(*context_, map, memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(&made) % 64, 0u);
  expect_nothing();
  EXPECT_THAT(encode(static_cast<char*>(memory) + 2), HasSubstr("[cuTensorMapEncodeTiled] test: FAKE_ERROR"));
  map.box_height = 512;
  EXPECT_THAT(encode(memory), HasSubstr("[cuTensorMapEncodeTiled] test"));
  expect("a tensor map that the device does not take: 0 2 512 64 64 512");
  map.box_height = 64;
  map.width = 500;
  EXPECT_THAT(encode(memory), HasSubstr("[cuTensorMapEncodeTiled] test"));
  expect("a tensor map that the device does not take: 0 2 500 64 64 64");
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, FakeChecks, testing::Values(kFakeCuda, kFakeAmd), vendor_name);

}  // namespace tg
