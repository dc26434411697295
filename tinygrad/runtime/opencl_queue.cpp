/// \file OpenCL: command queues and their events.
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/runtime/opencl_device.h"

namespace tg {
namespace {
class OpenClEvent final : public Event {
 public:
  OpenClEvent(const OpenClContext& context, cl_event event) : context_(context), event_(event) {}
  ~OpenClEvent() override { context_.cl.ReleaseEvent(event_); }
  bool done() override {
    cl_int status = CL_COMPLETE;
    context_.cl.GetEventInfo(event_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    return status <= CL_COMPLETE;  // negative: an error
  }
  void wait() override { context_.check(context_.cl.WaitForEvents(1, &event_), "clWaitForEvents"); }
  std::optional<double> seconds_since(const Event& earlier) const override {
    const auto* before = dynamic_cast<const OpenClEvent*>(&earlier);
    cl_ulong begin = 0, end = 0;
    if (!before || !before->time(&begin) || !time(&end)) return std::nullopt;
    return static_cast<double>(static_cast<int64_t>(end - begin)) * 1e-9;
  }
  cl_event handle() const { return event_; }

 private:
  bool time(cl_ulong* nanoseconds) const {
    return context_.cl.GetEventProfilingInfo(event_, CL_PROFILING_COMMAND_END, sizeof *nanoseconds, nanoseconds,
                                             nullptr) == CL_SUCCESS;
  }
  const OpenClContext& context_;
  cl_event event_;
};

cl_mem memory(MemoryPlace place) { return static_cast<cl_mem>(place.block); }

/// Waits for the queues that a thread has launched kernels in when it ends. At exit() that is before anything is torn
/// down: a driver that compiles a launched kernel in a thread of its own would crash without its compiler.
class FinishWithThread {
 public:
  ~FinishWithThread() {
    for (const auto& [cl, queue] : queues_) cl->Finish(queue);
  }
  void add(const OpenClFunctions& cl, cl_command_queue queue) { add_once(queues_, std::pair(&cl, queue)); }

 private:
  std::vector<std::pair<const OpenClFunctions*, cl_command_queue>> queues_;
};
}  // namespace

void OpenClQueue::finish_with_thread() const {
  static thread_local FinishWithThread finish;
  finish.add(context_.cl, queue_);
}

OpenClQueue::OpenClQueue(const OpenClContext& context) : context_(context) {
  cl_int error = CL_SUCCESS;
  queue_ = context_.cl.CreateCommandQueue(context_.context, context_.device.id, CL_QUEUE_PROFILING_ENABLE, &error);
  context_.check(error, "clCreateCommandQueue");
}

void OpenClQueue::copy_in(MemoryPlace dst, const void* src, size_t n) {
  context_.check(context_.cl.EnqueueWriteBuffer(queue_, memory(dst), CL_FALSE, dst.offset, n, src, 0, nullptr, nullptr),
                 "clEnqueueWriteBuffer");
}
void OpenClQueue::copy_out(void* dst, MemoryPlace src, size_t n) {
  context_.check(context_.cl.EnqueueReadBuffer(queue_, memory(src), CL_FALSE, src.offset, n, dst, 0, nullptr, nullptr),
                 "clEnqueueReadBuffer");
}
void OpenClQueue::copy(MemoryPlace dst, MemoryPlace src, size_t n) {
  context_.check(
      context_.cl.EnqueueCopyBuffer(queue_, memory(src), memory(dst), src.offset, dst.offset, n, 0, nullptr, nullptr),
      "clEnqueueCopyBuffer");
}
EventRef OpenClQueue::record() {
  cl_event event = nullptr;
  context_.check(context_.cl.EnqueueMarkerWithWaitList(queue_, 0, nullptr, &event), "clEnqueueMarkerWithWaitList");
  auto out = std::make_shared<OpenClEvent>(context_, event);
  flush();  // another queue may wait for it
  return out;
}
void OpenClQueue::wait_for(const EventRef& event) {
  const cl_event handle = static_cast<const OpenClEvent&>(*event).handle();
  context_.check(context_.cl.EnqueueBarrierWithWaitList(queue_, 1, &handle, nullptr), "clEnqueueBarrierWithWaitList");
}
void OpenClQueue::flush() { context_.check(context_.cl.Flush(queue_), "clFlush"); }
void OpenClQueue::wait() { context_.check(context_.cl.Finish(queue_), "clFinish"); }

}  // namespace tg
