/// \file Metal: the queue of kernels.
#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/metal_device.h"

namespace tg {
namespace {
constexpr size_t kMostInFlight = 1024;         ///< command buffers; Metal waits for one to end before it gives more
constexpr int kMostCommands = 64;              ///< of a command buffer, so that the GPU begins while others are encoded
constexpr size_t kCompleted = 4, kFailed = 5;  ///< MTLCommandBufferStatus
constexpr size_t kReadAndWrite = 1 | 2;        ///< MTLResourceUsage
constexpr size_t kCopyAlignment = 4;           ///< of offsets and sizes of copies, on macOS

/// Reached when a submission is done: command buffers of a queue end in the order they were committed in.
class MetalEvent final : public Event {
 public:
  MetalEvent(MetalContext& context, MetalQueue& queue, std::shared_ptr<MetalSubmission> submission)
      : context_(context), queue_(queue), submission_(std::move(submission)) {}
  bool done() override {
    if (!submission_ || context_.failure.happened()) return true;
    return metal().status(submission_->commands.get()) >= kCompleted;
  }
  void wait() override {
    if (submission_) queue_.wait_until_done(*submission_);
    else context_.failure.check(context_.name);
  }
  /// The time of one submission is that between its begin and its end, not what the GPU waited before.
  std::optional<double> seconds_since(const Event& earlier) const override {
    const auto* before = dynamic_cast<const MetalEvent*>(&earlier);
    if (!before) return std::nullopt;
    const MetalSubmission* first = before->submission_.get();
    if (submission_.get() == first) return 0.0;
    const MetalLibrary& m = metal();
    const ObjcId last = submission_->commands.get();
    const bool adjacent = submission_->number == (first ? first->number : 0) + 1;
    if (!adjacent && !first) return std::nullopt;
    return m.gpu_end(last) - (adjacent ? m.gpu_start(last) : m.gpu_end(first->commands.get()));
  }

 private:
  MetalContext& context_;
  MetalQueue& queue_;
  std::shared_ptr<MetalSubmission> submission_;  // empty: nothing was ever submitted
};
}  // namespace

void MetalFailure::set(const std::string& cause) {
  std::lock_guard lock(mutex_);
  if (cause_.empty()) cause_ = cause;
}
bool MetalFailure::happened() {
  std::lock_guard lock(mutex_);
  return !cause_.empty();
}
void MetalFailure::check(const std::string& device) {
  std::lock_guard lock(mutex_);
  TG_CHECK(DeviceError, cause_.empty(), "[metal] ", device, " has failed: ", cause_);
}

MetalQueue::MetalQueue(MetalContext& context) : context_(context) {
  const AutoreleasePool pool;
  queue_ = ObjcRef::adopt(metal().new_queue(context.gpu.handle.get(), kMostInFlight));
  TG_CHECK(DeviceError, queue_, "[metal] ", context.name, " gives no command queue");
}

MetalQueue::~MetalQueue() {
  const AutoreleasePool pool;
  end_encoder();  // an encoder that goes must have ended
}

// ---- encoding; the lock is held and a pool exists ----

/// Makes a command buffer where there is none.
void MetalQueue::begin_commands() {
  context_.failure.check(context_.name);
  if (open_) return;
  const ObjcId commands = metal().command_buffer(queue_.get());
  TG_CHECK(DeviceError, commands, "[metal] ", context_.name, " gives no command buffer");
  open_ = std::make_shared<MetalSubmission>();
  open_->commands = ObjcRef::share(commands);
}

/// Returns an encoder of a kind for the next command.
ObjcId MetalQueue::begin(Encoder kind) {
  begin_commands();
  if (encoding_ == kind) return encoder_.get();
  end_encoder();
  const MetalLibrary& m = metal();
  const ObjcId commands = open_->commands.get();
  encoder_ = ObjcRef::share(kind == Encoder::kCompute ? m.compute_encoder(commands) : m.blit_encoder(commands));
  TG_CHECK(DeviceError, encoder_, "[metal] ", context_.name, " gives no command encoder");
  encoding_ = kind;
  return encoder_.get();
}

void MetalQueue::end_encoder() {
  if (encoding_ == Encoder::kNone) return;
  metal().end_encoding(encoder_.get());
  encoder_ = {};
  encoding_ = Encoder::kNone;
  pipeline_ = nullptr;
}

void MetalQueue::count_command() {
  if (++commands_ >= kMostCommands) commit();
}

void MetalQueue::commit() {
  reap();
  if (!open_) return;
  end_encoder();
  metal().commit(open_->commands.get());
  open_->number = ++submitted_;
  in_flight_.push_back(open_);
  last_ = std::exchange(open_, nullptr);
  commands_ = 0;
}

/// Forgets what is done, and notes what failed.
void MetalQueue::reap() {
  const MetalLibrary& m = metal();
  while (!in_flight_.empty()) {
    const ObjcId commands = in_flight_.front()->commands.get();
    const size_t status = m.status(commands);
    if (status < kCompleted) return;
    if (status == kFailed) context_.failure.set(error_text_of(m.error(commands)));
    in_flight_.pop_front();
  }
}

// ---- commands ----

void MetalQueue::launch(ObjcId pipeline, const LaunchArgs& args) {
  if (args.is_empty()) return;
  const AutoreleasePool pool;
  const MetalLibrary& m = metal();
  std::lock_guard lock(mutex_);
  const ObjcId encoder = begin(Encoder::kCompute);
  if (pipeline_ != pipeline) m.set_pipeline(encoder, pipeline);
  pipeline_ = pipeline;
  const auto nbuffers = static_cast<size_t>(args.nbuffers);
  for (size_t i = 0; i < nbuffers; i++)
    m.set_buffer(encoder, metal_buffer(args.buffers[i]), static_cast<size_t>(args.offsets[i]), i);
  for (size_t i = 0; i < static_cast<size_t>(args.nvars); i++)
    m.set_bytes(encoder, &args.vars[i], sizeof args.vars[i], nbuffers + i);
  m.dispatch(encoder, metal_size(args.global), metal_size(args.local));
  count_command();
}

void MetalQueue::execute(ObjcId commands, MetalRange range, std::span<const ObjcId> buffers,
                         std::vector<ObjcRef> kept) {
  const AutoreleasePool pool;
  const MetalLibrary& m = metal();
  std::lock_guard lock(mutex_);
  end_encoder();  // what it has set is undefined afterwards
  const ObjcId encoder = begin(Encoder::kCompute);
  m.use_resources(encoder, buffers.data(), buffers.size(), kReadAndWrite);
  m.execute_commands(encoder, commands, range);
  end_encoder();
  for (ObjcRef& k : kept) open_->kept.push_back(std::move(k));
  count_command();
}

void MetalQueue::copy(MemoryPlace dst, MemoryPlace src, size_t n) {
  if (dst.offset % kCopyAlignment || src.offset % kCopyAlignment || n % kCopyAlignment) {
    transfers_->wait_for(record());
    transfers_->copy(dst, src, n);
    return wait_for(transfers_->record());
  }
  metal_bytes_at(context_, dst, n);
  metal_bytes_at(context_, src, n);
  const AutoreleasePool pool;
  std::lock_guard lock(mutex_);
  metal().copy_buffer(begin(Encoder::kBlit), metal_buffer(src.block), src.offset, metal_buffer(dst.block), dst.offset,
                      n);
  count_command();
}

/// What comes and goes here waits for the kernels before and is waited for by those behind.
void MetalQueue::copy_in(MemoryPlace dst, const void* src, size_t n) {
  transfers_->wait_for(record());
  transfers_->copy_in(dst, src, n);
  wait_for(transfers_->record());
}
void MetalQueue::copy_out(void* dst, MemoryPlace src, size_t n) {
  transfers_->wait_for(record());
  transfers_->copy_out(dst, src, n);
  wait_for(transfers_->record());
}

EventRef MetalQueue::record() {
  const AutoreleasePool pool;
  std::lock_guard lock(mutex_);
  commit();
  return std::make_shared<MetalEvent>(context_, *this, last_);
}

void MetalQueue::wait_for(const EventRef& event) {
  const auto* transfer = dynamic_cast<MetalTransferEvent*>(event.get());
  if (!transfer || event->done()) return;  // commands of this queue are in order
  const AutoreleasePool pool;
  std::lock_guard lock(mutex_);
  begin_commands();
  end_encoder();
  metal().wait_for_event(open_->commands.get(), transfers_->shared_event(), transfer->value);
  count_command();
}

void MetalQueue::flush() {
  const AutoreleasePool pool;
  std::lock_guard lock(mutex_);
  commit();
}

void MetalQueue::wait_until_done(const MetalSubmission& submission) {
  const AutoreleasePool pool;
  metal().wait_completed(submission.commands.get());
  {
    std::lock_guard lock(mutex_);
    reap();
  }
  context_.failure.check(context_.name);
}

void MetalQueue::wait() { record()->wait(); }

}  // namespace tg
