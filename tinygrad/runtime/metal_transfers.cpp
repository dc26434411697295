/// \file Metal: copies from and to the host.
#include <cstring>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/metal_device.h"

namespace tg {

void MetalTransferEvent::wait() {
  reached_.wait();
  context_.failure.check(context_.name);
}

std::optional<double> MetalTransferEvent::seconds_since(const Event& earlier) const {
  const auto* before = dynamic_cast<const MetalTransferEvent*>(&earlier);
  if (!before) return std::nullopt;
  return std::chrono::duration<double>(reached_.get() - before->reached_.get()).count();
}

char* metal_bytes_at(const MetalContext& context, MemoryPlace place, size_t n) {
  const MetalLibrary& m = metal();
  const size_t length = m.length(metal_buffer(place.block));
  TG_CHECK(DeviceError, place.offset <= length && n <= length - place.offset, "[copy] ", context.name, ": got bytes ",
           place.offset, " to ", place.offset + n, " of a buffer of ", length);
  return static_cast<char*>(m.contents(metal_buffer(place.block))) + place.offset;
}

MetalTransferQueue::MetalTransferQueue(MetalContext& context) : context_(context) {
  event_ = ObjcRef::adopt(metal().new_shared_event(context.gpu.handle.get()));
  TG_CHECK(DeviceError, event_, "[metal] ", context.name, " gives no shared event");
  thread_ = std::thread([this] { work(); });
}
MetalTransferQueue::~MetalTransferQueue() {
  push({});
  thread_.join();
}

void MetalTransferQueue::push(Command command) {
  std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
  condition_.notify_one();
}
/// Adds a command that is left out after a failure.
void MetalTransferQueue::enqueue(Command copy) {
  context_.failure.check(context_.name);
  push([this, copy = std::move(copy)] {
    if (!context_.failure.happened()) copy();
  });
}

void MetalTransferQueue::copy_in(MemoryPlace dst, const void* src, size_t n) {
  char* to = metal_bytes_at(context_, dst, n);
  enqueue([=, kept = ObjcRef::share(metal_buffer(dst.block))] { std::memcpy(to, src, n); });
}
void MetalTransferQueue::copy_out(void* dst, MemoryPlace src, size_t n) {
  const char* from = metal_bytes_at(context_, src, n);
  enqueue([=, kept = ObjcRef::share(metal_buffer(src.block))] { std::memcpy(dst, from, n); });
}
void MetalTransferQueue::copy(MemoryPlace dst, MemoryPlace src, size_t n) {
  char* to = metal_bytes_at(context_, dst, n);
  const char* from = metal_bytes_at(context_, src, n);
  enqueue([=, kept = ObjcRef::share(metal_buffer(dst.block)), also = ObjcRef::share(metal_buffer(src.block))] {
    std::memcpy(to, from, n);
  });
}

EventRef MetalTransferQueue::record() {
  std::lock_guard lock(mutex_);
  auto event = std::make_shared<MetalTransferEvent>(context_, ++recorded_);
  commands_.push_back([this, event] {
    metal().set_signaled(event_.get(), event->value);
    event->reach();
  });
  condition_.notify_one();
  return event;
}

void MetalTransferQueue::wait_for(const EventRef& event) {
  enqueue([event] { event->wait(); });
}

void MetalTransferQueue::wait() { record()->wait(); }

void MetalTransferQueue::work() {
  for (;;) {
    Command command;
    {
      std::unique_lock lock(mutex_);
      condition_.wait(lock, [&] { return !commands_.empty(); });
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    if (!command) return;
    const AutoreleasePool pool;
    try {
      command();
    } catch (const std::exception& e) {  // what it waited for has failed
      context_.failure.set(e.what());
    }
    command = {};  // its references belong to this pool
  }
}

}  // namespace tg
