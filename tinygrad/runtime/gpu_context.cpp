/// \file An opened GPU: its streams, its events, and what becomes of it when it fails.
#include <algorithm>

#include "tinygrad/runtime/gpu_device.h"

namespace tg {
namespace {
constexpr unsigned kNonBlockingStream = 1;  // in no order with the stream that other libraries may use
}  // namespace

GpuContext::GpuContext(const GpuDriver& gpu_driver, int ordinal, std::string device_name)
    : driver(gpu_driver), name(std::move(device_name)) {
  call(driver.f.get_device, &device, ordinal);
  const auto ask = [&](GpuAttribute a) -> int64_t { return driver.attribute(device, a); };
  size_t all = 0;
  call(driver.f.device_bytes, &all, device);
  bytes = static_cast<int64_t>(all);
  pools = driver.attribute_if_known(device, GpuAttribute::kMemoryPools) != 0;
  shared_static = ask(GpuAttribute::kSharedBytes);
  shared_limit = std::max<int64_t>(shared_static, driver.attribute_if_known(device, GpuAttribute::kSharedBytesOptIn));
  constexpr GpuAttribute kGroup[] = {GpuAttribute::kGroupX, GpuAttribute::kGroupY, GpuAttribute::kGroupZ};
  constexpr GpuAttribute kGrid[] = {GpuAttribute::kGridX, GpuAttribute::kGridY, GpuAttribute::kGridZ};
  for (int i = 0; i < 3; i++) {
    group_limit[i] = ask(kGroup[i]);
    grid_limit[i] = ask(kGrid[i]);
  }
  driver.open(*this);
  try {
    enter();
    for (void** stream : {&compute, &transfer, &memory}) call(driver.f.create_stream, stream, kNonBlockingStream);
  } catch (...) {
    release();
    throw;
  }
}

GpuContext::~GpuContext() { release(); }

void GpuContext::release() noexcept {
  if (enter_quietly()) {
    for (void* event : events_) driver.f.destroy_event(event);
    for (void* stream : {compute, transfer, memory})
      if (stream) driver.f.destroy_stream(stream);
  }
  driver.close(*this);
}

void GpuContext::enter() const {
  check_failed();
  if (const int error = driver.make_current(*this)) fail(error, driver.make_current_symbol());
}

void GpuContext::raise_failure() const {
  std::unique_lock lock(mutex_);
  if (const std::function<void()> raise = lost_) {
    lock.unlock();
    raise();
  }
  throw DeviceError(str("[device] ", name, " has failed: ", cause_));
}

void GpuContext::lose(std::function<void()> raise) const noexcept {
  std::lock_guard lock(mutex_);
  if (!cause_.empty()) return;
  cause_ = "an exchange with other processes did not end";
  lost_ = std::move(raise);
  failed_.store(true, std::memory_order_release);
}

bool GpuContext::enter_quietly() const noexcept { return driver.make_current(*this) == 0; }

void GpuContext::note(int error, const char* symbol) const noexcept {
  if (!gpu_error::is_fatal(error)) return;
  std::lock_guard lock(mutex_);
  if (!cause_.empty()) return;
  cause_ = str("[", symbol, "] ", driver.text_of(error));
  failed_.store(true, std::memory_order_release);
}

void GpuContext::fail(int error, const char* symbol) const {
  note(error, symbol);
  throw DeviceError(str("[", symbol, "] ", name, ": ", driver.text_of(error)));
}

void* GpuContext::take_event() const {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      void* event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  void* event = nullptr;
  call(driver.f.create_event, &event, 0u);  // with a time
  return event;
}

void GpuContext::return_event(void* event) const noexcept {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void GpuContext::order(void* stream, void* other) const {
  void* event = take_event();
  int error = driver.f.record_event(event, other);
  const char* symbol = driver.f.record_event.symbol;
  if (!error) {
    error = driver.f.wait_for_event(stream, event, 0);
    symbol = driver.f.wait_for_event.symbol;
  }
  return_event(event);  // the stream waits for what it was recorded behind, whatever it is used for next
  if (error) fail(error, symbol);
}

}  // namespace tg
