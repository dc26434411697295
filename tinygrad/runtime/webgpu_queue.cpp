/// \file WebGPU: the queue, its copies and its events.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/webgpu_device.h"

namespace tg {
namespace {
using namespace webgpu;

constexpr uint64_t kArgumentBytes = 64 << 10;  ///< of the kernels in one submission
constexpr uint64_t kPiece = 32 << 20;          ///< bytes that are copied at once
constexpr uint32_t kClocks = 256;              ///< that are alive at the same time
constexpr uint32_t kNoClock = UINT32_MAX;
constexpr int kCopyThreads = 64;

/// Copies bytes between places that are not at words. A thread owns a word of the destination.
constexpr std::string_view kByteCopy = R"(// copy_bytes buffers 4 4 variables 2
struct Given { zero: u32, offset0: i32, offset1: i32, dst: u32, src: u32, count: u32, unused: u32 }
@group(0) @binding(0) var<uniform> given: Given;
@group(0) @binding(1) var<storage, read_write> data0: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> data1: array<atomic<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let word = given.dst / 4u + id.x;
  var mask = 0u;
  var bits = 0u;
  for (var i = 0u; i < 4u; i++) {
    let at = word * 4u + i;
    if (at >= given.dst && at < given.dst + given.count) {
      let origin = given.src + (at - given.dst);
      mask |= 0xffu << (i * 8u);
      bits |= extractBits(atomicLoad(&data1[origin / 4u]), (origin % 4u) * 8u, 8u) << (i * 8u);
    }
  }
  if (mask != 0u) { atomicStore(&data0[word], (atomicLoad(&data0[word]) & ~mask) | bits); }
}
)";

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
const WebGpuBlock& block_of(MemoryPlace place) { return *static_cast<const WebGpuBlock*>(place.block); }

class WebGpuEvent final : public Event {
 public:
  WebGpuEvent(WebGpuQueue& queue, uint64_t number, uint32_t clock) : queue_(queue), number_(number), clock_(clock) {}
  ~WebGpuEvent() override { queue_.release_clock(clock_); }
  bool done() override { return queue_.is_done(number_); }
  void wait() override { queue_.wait_until(number_); }
  std::optional<double> seconds_since(const Event& earlier) const override {
    const auto* before = dynamic_cast<const WebGpuEvent*>(&earlier);
    if (!before) return std::nullopt;
    const std::optional<double> begin = queue_.time_of(before->clock_), end = queue_.time_of(clock_);
    if (!begin || !end) return std::nullopt;
    return *end - *begin;
  }

 private:
  WebGpuQueue& queue_;
  const uint64_t number_;  // of the submission
  const uint32_t clock_;
};

/// What is to be noted when a submission is done.
struct Submission {
  std::shared_ptr<std::atomic<uint64_t>> done;
  uint64_t number;
};
void note_done(uint32_t, Text, void* submission, void*) {
  const std::unique_ptr<Submission> s(static_cast<Submission*>(submission));
  uint64_t last = s->done->load();
  while (last < s->number && !s->done->compare_exchange_weak(last, s->number)) {}
}
void note_mapped(uint32_t status, Text, void* state, void*) {
  const std::unique_ptr<std::shared_ptr<std::atomic<int>>> s(static_cast<std::shared_ptr<std::atomic<int>>*>(state));
  **s = status == kSuccess ? 1 : 2;
}
}  // namespace

WebGpuQueue::WebGpuQueue(const WebGpuContext& context) : context_(context) {
  arguments_ = context.create_buffer(kArgumentBytes, buffer_usage::kUniform | buffer_usage::kCopyTarget);
  TG_CHECK(DeviceError, arguments_, "[webgpu] ", context.name, " has no memory");
  if (!context.adapter.timestamps) return;
  QuerySetDescriptor descriptor;
  descriptor.count = kClocks;
  const std::string error =
      context.errors_of([&] { queries_ = context.f.DeviceCreateQuerySet(context.device, &descriptor); });
  if (!error.empty()) queries_ = nullptr;
  for (uint32_t i = 0; queries_ && i < kClocks; i++) free_clocks_.push_back(i);
}

// ---- what is collected, and its submission ----

Handle WebGpuQueue::encoder() {
  if (!encoder_) {
    const LabelDescriptor descriptor;
    encoder_ = context_.f.DeviceCreateCommandEncoder(context_.device, &descriptor);
  }
  return encoder_;
}
Handle WebGpuQueue::pass() {
  if (!pass_) {
    const PassDescriptor descriptor;
    pass_ = context_.f.CommandEncoderBeginComputePass(encoder(), &descriptor);
  }
  return pass_;
}
void WebGpuQueue::end_pass() {
  if (!pass_) return;
  context_.f.ComputePassEncoderEnd(pass_);
  context_.f.ComputePassEncoderRelease(pass_);
  pass_ = nullptr;
}

/// Hands everything to the device, unless it has failed. Data that was written for the commands goes in front of them.
void WebGpuQueue::submit() {
  end_pass();
  const Functions& f = context_.f;
  if (!encoder_ && !wrote_) return;
  if (!given_.empty()) f.QueueWriteBuffer(context_.queue, arguments_, 0, given_.data(), given_.size() * 4);
  given_.clear();
  Handle commands = nullptr;
  if (encoder_) {
    const LabelDescriptor descriptor;
    const std::string error = context_.errors_of([&] { commands = f.CommandEncoderFinish(encoder_, &descriptor); });
    if (!error.empty()) context_.failure.set(error);
    f.CommandEncoderRelease(encoder_);
    encoder_ = nullptr;
  }
  // wgpu-native ends the process when something is submitted to a device that is lost.
  if (!context_.failure.happened()) f.QueueSubmit(context_.queue, commands ? 1 : 0, &commands);
  if (commands) f.CommandBufferRelease(commands);
  for (Handle buffer : temporary_) f.BufferRelease(buffer);
  temporary_.clear();
  wrote_ = false;
  if (context_.failure.happened()) return;
  submitted_++;
  Callback<StatusFunction> callback;
  callback.function = note_done;
  callback.first = new Submission{done_, submitted_};
  f.QueueOnSubmittedWorkDone(context_.queue, callback);
  map_readbacks();
  await_compiler();
}

/// Waits while kernels run for the first time where processors are the device: Mesa's llvmpipe compiles them then, in a
/// thread of its own, and does not survive a process that ends meanwhile.
void WebGpuQueue::await_compiler() {
  if (!std::exchange(compiles_, false) || !context_.adapter.processor) return;
  while (done_->load() < submitted_ && !context_.failure.happened()) context_.poll(true);
}

void WebGpuQueue::flush() {
  std::lock_guard lock(mutex_);
  context_.check();
  submit();
  context_.check();
}

bool WebGpuQueue::reached(uint64_t number) {
  collect();
  if (done_->load() < number) return false;
  return std::none_of(readbacks_.begin(), readbacks_.end(), [&](const Readback& r) { return r.submission <= number; });
}
bool WebGpuQueue::is_done(uint64_t number) {
  if (context_.failure.happened()) return true;
  context_.poll(false);
  std::lock_guard lock(mutex_);
  return reached(number);
}
void WebGpuQueue::wait_until(uint64_t number) {
  for (;;) {
    context_.check();
    {
      std::lock_guard lock(mutex_);
      if (reached(number)) break;
    }
    context_.poll(true);
  }
  context_.check();
}
void WebGpuQueue::wait() {
  uint64_t last = 0;
  {
    std::lock_guard lock(mutex_);
    context_.check();
    submit();
    last = submitted_;
  }
  wait_until(last);
}

EventRef WebGpuQueue::record() {
  std::lock_guard lock(mutex_);
  context_.check();
  uint32_t clock = kNoClock;
  if (!free_clocks_.empty()) {
    clock = free_clocks_.back();
    free_clocks_.pop_back();
    end_pass();
    TimestampWrites times;
    times.queries = queries_;
    times.end = clock;
    PassDescriptor descriptor;
    descriptor.timestamps = &times;
    pass_ = context_.f.CommandEncoderBeginComputePass(encoder(), &descriptor);
  }
  submit();
  context_.check();
  return std::make_shared<WebGpuEvent>(*this, submitted_, clock);
}
void WebGpuQueue::release_clock(uint32_t clock) {
  std::lock_guard lock(mutex_);
  if (clock != kNoClock) free_clocks_.push_back(clock);
}
std::optional<double> WebGpuQueue::time_of(uint32_t clock) {
  if (clock == kNoClock || context_.failure.happened()) return std::nullopt;
  const Handle ticks = context_.create_buffer(8, buffer_usage::kQueryResolve | buffer_usage::kCopySource);
  if (!ticks) return std::nullopt;
  uint64_t count = 0;
  {
    std::lock_guard lock(mutex_);
    end_pass();
    context_.f.CommandEncoderResolveQuerySet(encoder(), queries_, clock, 1, ticks, 0);
    temporary_.push_back(ticks);
    read_back(ticks, 0, 8, &count, 0, 8);
  }
  wait();
  const float period = context_.f.QueueGetTimestampPeriod ? context_.f.QueueGetTimestampPeriod(context_.queue) : 1;
  return static_cast<double>(count) * static_cast<double>(period) * 1e-9;
}

// ---- kernels ----

void WebGpuQueue::dispatch(const WebGpuKernel& kernel, std::span<const WebGpuBinding> bindings,
                           std::span<const uint32_t> arguments, const int64_t groups[3]) {
  const Functions& f = context_.f;
  const uint64_t words = round_up(arguments.size() * 4, context_.adapter.limits.uniform_alignment) / 4;
  TG_CHECK(DeviceError, words * 4 <= kArgumentBytes, "[launch] ", context_.name, ": kernel ", kernel.header.name,
           " has ", arguments.size(), " arguments, at most ", kArgumentBytes / 4, " are possible");
  if ((given_.size() + words) * 4 > kArgumentBytes) submit();
  const auto offset = static_cast<uint32_t>(given_.size() * 4);
  given_.insert(given_.end(), arguments.begin(), arguments.end());
  given_.resize(offset / 4 + words);
  std::vector<BindGroupEntry> entries(1);
  entries[0].buffer = arguments_;
  entries[0].size = arguments.size() * 4;
  for (const WebGpuBinding& b : bindings) {
    BindGroupEntry e;
    e.binding = b.number;
    e.buffer = b.buffer;
    e.offset = b.offset;
    e.size = b.bytes;
    entries.push_back(e);
  }
  BindGroupDescriptor descriptor;
  descriptor.layout = kernel.layout;
  descriptor.count = entries.size();
  descriptor.entries = entries.data();
  const Handle group = f.DeviceCreateBindGroup(context_.device, &descriptor);
  const Handle pass = this->pass();
  f.ComputePassEncoderSetPipeline(pass, kernel.pipeline);
  f.ComputePassEncoderSetBindGroup(pass, 0, group, 1, &offset);
  f.ComputePassEncoderDispatchWorkgroups(pass, static_cast<uint32_t>(groups[0]), static_cast<uint32_t>(groups[1]),
                                         static_cast<uint32_t>(groups[2]));
  if (group) f.BindGroupRelease(group);
  compiles_ |= !std::exchange(kernel.has_run, true);
}
void WebGpuQueue::launch(const WebGpuKernel& kernel, std::span<const WebGpuBinding> bindings,
                         std::span<const uint32_t> arguments, const int64_t groups[3]) {
  std::lock_guard lock(mutex_);
  dispatch(kernel, bindings, arguments, groups);
  context_.check();
}

// ---- copies ----

const WebGpuKernel& WebGpuQueue::byte_copy_kernel() {
  if (!byte_copy_) byte_copy_ = std::make_unique<WebGpuKernel>(make_webgpu_kernel(context_, kByteCopy, "copy_bytes"));
  return *byte_copy_;
}
void WebGpuQueue::copy_bytes(Handle dst, uint64_t dst_offset, Handle src, uint64_t src_offset, uint64_t n) {
  const uint64_t alignment = context_.adapter.limits.storage_alignment;
  auto bound = [&](Handle buffer, uint64_t offset, uint32_t number) {
    const uint64_t begin = offset / alignment * alignment;
    return WebGpuBinding{buffer, begin, round_up(offset + n, 4) - begin, number};
  };
  const WebGpuBinding bindings[] = {bound(dst, dst_offset, 1), bound(src, src_offset, 2)};
  const auto to = static_cast<uint32_t>(dst_offset - bindings[0].offset),
             from = static_cast<uint32_t>(src_offset - bindings[1].offset), count = static_cast<uint32_t>(n);
  const uint32_t arguments[] = {0, 0, 0, to, from, count, 0};
  const int64_t words = (to + count - 1) / 4 - to / 4 + 1;
  const int64_t groups[3] = {(words + kCopyThreads - 1) / kCopyThreads, 1, 1};
  dispatch(byte_copy_kernel(), bindings, arguments, groups);
}

void WebGpuQueue::copy_in(MemoryPlace dst, const void* src, size_t n) {
  std::lock_guard lock(mutex_);
  context_.check();
  const WebGpuBlock& block = block_of(dst);
  const uint64_t whole = n / 4 * 4, rounded = round_up(n, 4);
  const bool at_words = dst.offset % 4 == 0;
  // The last word of a block is its own.
  const bool at_end = at_words && dst.offset + rounded == block.bytes;
  if (at_words && (whole == n || at_end)) {
    submit();
    if (whole > 0) context_.f.QueueWriteBuffer(context_.queue, block.buffer, dst.offset, src, whole);
    if (whole < n) {
      char last[4] = {};
      std::memcpy(last, static_cast<const char*>(src) + whole, n - whole);
      context_.f.QueueWriteBuffer(context_.queue, block.buffer, dst.offset + whole, last, 4);
    }
    wrote_ = true;
    return context_.check();
  }
  for (uint64_t at = 0; at < n; at += kPiece) {
    const uint64_t bytes = std::min<uint64_t>(n - at, kPiece);
    const Handle from = context_.create_buffer(
        round_up(bytes, 4), buffer_usage::kStorage | buffer_usage::kCopyTarget | buffer_usage::kCopySource);
    TG_CHECK(DeviceError, from, "[copy] ", context_.name, " has no memory to copy ", bytes, " bytes");
    std::vector<char> words(round_up(bytes, 4));
    std::memcpy(words.data(), static_cast<const char*>(src) + at, bytes);
    context_.f.QueueWriteBuffer(context_.queue, from, 0, words.data(), words.size());
    temporary_.push_back(from);
    copy_bytes(block.buffer, dst.offset + at, from, 0, bytes);
  }
  context_.check();
}

void WebGpuQueue::copy_out(void* dst, MemoryPlace src, size_t n) {
  std::lock_guard lock(mutex_);
  context_.check();
  const Handle buffer = block_of(src).buffer;
  for (uint64_t at = 0; at < n; at += kPiece) {
    const uint64_t bytes = std::min<uint64_t>(n - at, kPiece), from = src.offset + at, begin = from / 4 * 4;
    read_back(buffer, begin, round_up(from + bytes, 4) - begin, static_cast<char*>(dst) + at, from - begin, bytes);
  }
  context_.check();
}

void WebGpuQueue::copy(MemoryPlace dst, MemoryPlace src, size_t n) {
  std::lock_guard lock(mutex_);
  context_.check();
  const Handle to = block_of(dst).buffer, from = block_of(src).buffer;
  if (to != from && (dst.offset | src.offset | n) % 4 == 0) {
    end_pass();
    context_.f.CommandEncoderCopyBufferToBuffer(encoder(), from, src.offset, to, dst.offset, n);
  } else {
    for (uint64_t at = 0; at < n; at += kPiece)
      copy_bytes(to, dst.offset + at, from, src.offset + at, std::min<uint64_t>(n - at, kPiece));
  }
  context_.check();
}

/// Copies whole words to memory that can be mapped, of which `take` bytes behind `skip` go to the host.
void WebGpuQueue::read_back(Handle buffer, uint64_t offset, uint64_t n, void* to, uint64_t skip, uint64_t take) {
  const Handle mappable = context_.create_buffer(n, buffer_usage::kMapRead | buffer_usage::kCopyTarget);
  TG_CHECK(DeviceError, mappable, "[copy] ", context_.name, " has no memory to read ", n, " bytes");
  end_pass();
  context_.f.CommandEncoderCopyBufferToBuffer(encoder(), buffer, offset, mappable, 0, n);
  readbacks_.push_back({mappable, to, skip, take, n, submitted_ + 1, nullptr});
}
/// Asks for the memory of what was submitted.
void WebGpuQueue::map_readbacks() {
  for (Readback& r : readbacks_) {
    if (r.state) continue;
    r.state = std::make_shared<std::atomic<int>>(0);
    Callback<StatusFunction> callback;
    callback.function = note_mapped;
    callback.first = new std::shared_ptr<std::atomic<int>>(r.state);
    context_.f.BufferMapAsync(r.buffer, kMapForReading, 0, r.mapped_bytes, callback);
  }
}
/// Copies what has been mapped to the host.
void WebGpuQueue::collect() {
  while (!readbacks_.empty() && readbacks_.front().state && *readbacks_.front().state != 0) {
    const Readback r = readbacks_.front();
    readbacks_.pop_front();
    const void* mapped = *r.state == 1 ? context_.f.BufferGetConstMappedRange(r.buffer, 0, r.mapped_bytes) : nullptr;
    if (mapped) {
      std::memcpy(r.to, static_cast<const char*>(mapped) + r.skip, r.bytes);
      context_.f.BufferUnmap(r.buffer);
    } else {
      context_.failure.set("memory could not be read");
    }
    context_.f.BufferRelease(r.buffer);
  }
}

}  // namespace tg
