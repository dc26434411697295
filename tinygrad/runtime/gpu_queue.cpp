/// \file Streams of GPUs and their events.
#include "tinygrad/runtime/gpu_device.h"

namespace tg {
namespace {

class GpuEvent final : public Event {
 public:
  GpuEvent(const GpuContext& context, void* stream) : context_(context), event_(context.take_event()) {
    const auto& record = context.driver.f.record_event;
    if (const int error = record(event_, stream)) {
      context.return_event(event_);
      context.fail(error, record.symbol);
    }
  }
  ~GpuEvent() override { context_.return_event(event_); }
  bool done() override {
    if (!context_.enter_quietly()) return true;
    const auto& query = context_.driver.f.query_event;
    const int error = query(event_);
    context_.note(error, query.symbol);
    return error != gpu_error::kNotReady;
  }
  void wait() override {
    context_.enter();
    context_.call(context_.driver.f.synchronize_event, event_);
    context_.check_failed();
  }
  std::optional<double> seconds_since(const Event& earlier) const override {
    const auto* before = dynamic_cast<const GpuEvent*>(&earlier);
    float milliseconds = 0;
    if (!before || &before->context_ != &context_ || !context_.enter_quietly() ||
        context_.driver.f.elapsed_time(&milliseconds, before->event_, event_) != 0)
      return std::nullopt;
    return milliseconds * 1e-3;
  }
  void* handle() const { return event_; }

 private:
  const GpuContext& context_;
  void* const event_;
};

void* address(MemoryPlace place) { return static_cast<char*>(place.block) + place.offset; }
}  // namespace

void GpuQueue::copy_in(MemoryPlace dst, const void* src, size_t n) {
  context_.enter();
  context_.call(context_.driver.f.copy_in, address(dst), src, n, stream_);
}
void GpuQueue::copy_out(void* dst, MemoryPlace src, size_t n) {
  context_.enter();
  context_.call(context_.driver.f.copy_out, dst, address(src), n, stream_);
}
void GpuQueue::copy(MemoryPlace dst, MemoryPlace src, size_t n) {
  context_.enter();
  context_.call(context_.driver.f.copy, address(dst), address(src), n, stream_);
}
EventRef GpuQueue::record() {
  context_.enter();
  return std::make_shared<GpuEvent>(context_, stream_);
}
void GpuQueue::wait_for(const EventRef& event) {
  context_.enter();
  context_.call(context_.driver.f.wait_for_event, stream_, static_cast<const GpuEvent&>(*event).handle(), 0u);
}
void GpuQueue::wait() {
  context_.enter();
  context_.call(context_.driver.f.synchronize_stream, stream_);
  context_.check_failed();
}

}  // namespace tg
