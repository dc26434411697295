/// \file Fake Metal: queues, command buffers, encoders and events. A thread for each queue executes what was committed.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "fake_metal/fake_objects.h"

namespace tg::fake_metal {
namespace {
constexpr auto kPatience = std::chrono::seconds(60);  ///< after which a GPU waits for ever
constexpr size_t kMostBytes = 4096;                   ///< of an argument that is no buffer

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Returns how long to wait before the next command buffer, and whether it is to fail.
std::pair<std::chrono::microseconds, bool> next_fate() {
  static std::minstd_rand random(17);
  Faults& f = faults();
  std::lock_guard lock(f.mutex);
  const bool fails = f.commands > 0 && --f.commands == 0;
  return {std::chrono::microseconds(f.delay ? static_cast<int64_t>(random() % static_cast<unsigned>(f.delay)) : 0),
          fails};
}

void execute(CommandBuffer& b) {
  const auto [delay, to_fail] = next_fate();
  std::this_thread::sleep_for(delay);
  std::string failure;
  const double start = now();
  try {
    TG_CHECK(DeviceError, !to_fail, "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)");
    for (const auto& command : b.commands) command();
  } catch (const std::exception& e) { failure = e.what(); }
  b.commands.clear();
  b.kept.clear();
  if (!failure.empty()) {
    Error* error = create<Error>("GPU error: " + failure);
    b.error = Held(error);
    release(error);
  }
  std::lock_guard lock(b.mutex);
  b.start = start;
  b.end = now();
  b.status = failure.empty() ? 4 : 5;
  b.condition.notify_all();
}

void work(CommandQueue* queue) {
  for (;;) {
    Held<CommandBuffer> next;
    {
      std::unique_lock lock(queue->mutex);
      queue->condition.wait(lock, [&] { return queue->closed || !queue->committed.empty(); });
      if (queue->committed.empty()) return;
      next = std::move(queue->committed.front());
      queue->committed.pop_front();
    }
    execute(*next.get());
  }
}
}  // namespace

CommandQueue::CommandQueue() : Object(class_of(kClass)), thread(work, this) {}
CommandQueue::~CommandQueue() {
  {
    std::lock_guard lock(mutex);
    closed = true;
    condition.notify_one();
  }
  thread.join();
}

Encoder::~Encoder() {
  if (!ended) violation("an encoder that goes without endEncoding");
}

// ---- kernels ----

void set_slot(std::array<Slot, kMostSlots>& slots, Buffer* buffer, size_t offset, size_t index) {
  if (index >= kMostSlots) return violation("argument " + std::to_string(index) + " of at most 31");
  if (!buffer || offset >= buffer->length)
    return violation("offset " + std::to_string(offset) + " beyond the end of its buffer");
  slots[index] = {buffer, offset, {}};
}

LaunchSize launch_size(MetalSize groups, MetalSize threads) {
  LaunchSize out;
  const size_t g[3] = {groups.width, groups.height, groups.depth},
               t[3] = {threads.width, threads.height, threads.depth};
  for (int i = 0; i < 3; i++) {
    out.global[i] = static_cast<int64_t>(g[i]);
    out.local[i] = static_cast<int64_t>(t[i]);
  }
  return out;
}

bool check_dispatch(const Dispatch& d) {
  const auto wrong = [](const std::string& what) {
    violation(what);
    return false;
  };
  if (!d.pipeline) return wrong("a dispatch without a pipeline");
  const std::string& name = d.pipeline->image->program->name;
  const LaunchSize& s = d.size;
  const int64_t threads = s.local[0] * s.local[1] * s.local[2];
  if (threads == 0 || s.is_empty()) return wrong("an empty dispatch of " + name);
  if (threads > static_cast<int64_t>(d.pipeline->most_threads()))
    return wrong(str(threads, " threads in a group of ", name, ", at most ", d.pipeline->most_threads()));
  const auto& buffers = d.pipeline->image->buffers;
  for (size_t i = 0; i < buffers.size(); i++) {
    const Slot& slot = d.slots[i];
    if (!slot.buffer) return wrong(str("buffer ", i, " of ", name, " is not set"));
    const size_t element = d.pipeline->element_bytes[i];
    if (slot.offset % element)
      return wrong(str("offset ", slot.offset, " of buffer ", i, " of ", name, ", elements have ", element, " bytes"));
    const size_t bytes = buffers[i].exact ? static_cast<size_t>(buffers[i].bytes) : 1;
    if (slot.offset + bytes > slot.buffer->length) return wrong(str("buffer ", i, " of ", name, " is too small"));
  }
  for (size_t i = 0; i < d.pipeline->image->program->vars.size(); i++) {
    const Slot& slot = d.slots[buffers.size() + i];
    const size_t bytes = slot.buffer ? slot.buffer->length - slot.offset : slot.bytes.size();
    if (bytes < sizeof(int64_t)) return wrong(str("variable ", i, " of ", name, " is not set"));
    if (slot.buffer && slot.offset % 256) return wrong(str("variable ", i, " of ", name, " is not aligned"));
  }
  return true;
}

void run_dispatch(const Dispatch& d) {
  const ProgramImage& image = *d.pipeline->image;
  std::vector<void*> memory;
  std::vector<int64_t> variables;
  for (size_t i = 0; i < image.buffers.size(); i++) memory.push_back(d.slots[i].buffer->data + d.slots[i].offset);
  for (size_t i = 0; i < image.program->vars.size(); i++) {
    const Slot& slot = d.slots[image.buffers.size() + i];
    std::memcpy(&variables.emplace_back(), slot.buffer ? slot.buffer->data + slot.offset : slot.bytes.data(),
                sizeof(int64_t));
  }
  const LaunchSize& s = d.size;
  d.pipeline->interpreter.run_groups(memory.data(), variables.data(), s, 0, s.global[0] * s.global[1] * s.global[2]);
}

// ---- methods ----

namespace {
/// Whether an encoder or a command buffer still takes commands.
bool check_open(Encoder* e) {
  if (e->ended) violation("a command for an encoder that has ended");
  return !e->ended;
}

template <class E> Object* new_encoder(CommandBuffer* self, Selector* selector) {
  if (fails(selector)) return nullptr;
  if (self->committed) violation("an encoder of a command buffer that was committed");
  if (self->encoding) violation("an encoder beside another one");
  return create_autoreleased<E>(*self);
}

void end_encoding(Encoder* self, Selector*) {
  if (self->ended) violation("endEncoding twice");
  self->ended = true;
  self->commands->encoding = false;
}

void commit(CommandBuffer* self, Selector*) {
  if (self->committed) return violation("commit twice");
  if (self->encoding) return violation("commit before endEncoding");
  self->committed = true;
  {
    std::lock_guard lock(self->mutex);
    self->status = 2;
  }
  if (!is_alive(self->queue)) return violation("commit to a queue that is gone");
  CommandQueue& queue = *self->queue;
  std::lock_guard lock(queue.mutex);
  queue.committed.emplace_back(self);
  queue.condition.notify_one();
}

void encode_wait(CommandBuffer* self, Selector*, SharedEvent* event, uint64_t value) {
  if (self->committed) violation("a command for a command buffer that was committed");
  if (self->encoding) violation("encodeWaitForEvent before endEncoding");
  self->commands.push_back([held = Held(event), value] {
    std::unique_lock lock(held->mutex);
    if (!held->condition.wait_for(lock, kPatience, [&] { return held->value >= value; }))
      violation("the GPU waits for an event for ever");
  });
}

void wait_completed(CommandBuffer* self, Selector*) {
  if (!self->committed) return violation("waitUntilCompleted before commit");
  std::unique_lock lock(self->mutex);
  self->condition.wait(lock, [&] { return self->status >= 4; });
}

void dispatch(ComputeEncoder* self, Selector*, MetalSize groups, MetalSize threads) {
  if (!check_open(self)) return;
  Dispatch d = self->next;
  d.size = launch_size(groups, threads);
  if (!check_dispatch(d)) return;
  CommandBuffer& b = *self->commands.get();
  b.kept.emplace_back(d.pipeline);
  for (const Slot& s : d.slots)
    if (s.buffer) b.kept.emplace_back(s.buffer);
  b.commands.push_back([d = std::move(d)] { run_dispatch(d); });
}

void copy_buffer(BlitEncoder* self, Selector*, Buffer* from, size_t from_offset, Buffer* to, size_t to_offset,
                 size_t bytes) {
  if (!check_open(self)) return;
  if (from_offset % 4 || to_offset % 4 || bytes % 4 || bytes == 0) return violation("a copy of parts of words");
  if (from_offset + bytes > from->length || to_offset + bytes > to->length) return violation("a copy beyond a buffer");
  if (from == to && from_offset < to_offset + bytes && to_offset < from_offset + bytes)
    return violation("a copy onto itself");
  self->commands->commands.push_back([from = Held(from), to = Held(to), from_offset, to_offset, bytes] {
    std::memcpy(to->data + to_offset, from->data + from_offset, bytes);
  });
}

void add_encoders() {
  add_method("MTLCommandBuffer", "computeCommandEncoder", new_encoder<ComputeEncoder>);
  add_method("MTLCommandBuffer", "blitCommandEncoder", new_encoder<BlitEncoder>);
  for (const char* name : {ComputeEncoder::kClass, BlitEncoder::kClass}) add_method(name, "endEncoding", end_encoding);
  const char* compute = ComputeEncoder::kClass;
  add_method(
      compute, "setComputePipelineState:", +[](ComputeEncoder* e, Selector*, Pipeline* p) {
        if (check_open(e)) e->next.pipeline = p;
      });
  add_method(
      compute, "setBuffer:offset:atIndex:", +[](ComputeEncoder* e, Selector*, Buffer* b, size_t offset, size_t i) {
        if (check_open(e)) set_slot(e->next.slots, b, offset, i);
      });
  add_method(
      compute, "setBytes:length:atIndex:", +[](ComputeEncoder* e, Selector*, const void* p, size_t n, size_t i) {
        if (i >= kMostSlots || n == 0 || n > kMostBytes) return violation("bytes that do not fit");
        const auto* bytes = static_cast<const std::byte*>(p);
        e->next.slots[i] = {nullptr, 0, {bytes, bytes + n}};
      });
  add_method(compute, "dispatchThreadgroups:threadsPerThreadgroup:", dispatch);
  add_method(
      compute,
      "useResources:count:usage:", +[](ComputeEncoder* e, Selector*, Object* const* resources, size_t n, size_t usage) {
        if (usage != 3) violation("resources that are not read and written");
        e->resources.insert(resources, resources + n);
      });
  add_method(
      compute,
      "executeCommandsInBuffer:withRange:", +[](ComputeEncoder* e, Selector*, IndirectCommands* c, MetalRange range) {
        if (!check_open(e)) return;
        c->in_flight++;
        e->commands->commands.push_back([held = Held(c), range, resources = e->resources] {
          struct Done {
            IndirectCommands& c;
            ~Done() { c.in_flight--; }
          } done{*held.get()};
          execute_indirect(*held.get(), range, resources);
        });
      });
  add_method(BlitEncoder::kClass, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", copy_buffer);
}

template <class F> auto with_lock(CommandBuffer* b, F f) {
  std::lock_guard lock(b->mutex);
  return f();
}
}  // namespace

void add_command_methods() {
  add_method(
      "MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", +[](Device*, Selector* s, size_t n) -> Object* {
        if (n == 0) violation("a queue of no command buffers");
        return fails(s) ? nullptr : create<CommandQueue>();
      });
  add_method(
      "MTLDevice", "newSharedEvent",
      +[](Device*, Selector* s) -> Object* { return fails(s) ? nullptr : create<SharedEvent>(); });
  add_method(
      "MTLSharedEvent", "setSignaledValue:", +[](SharedEvent* e, Selector*, uint64_t value) {
        std::lock_guard lock(e->mutex);
        if (value <= e->value) violation("an event that goes back");
        e->value = value;
        e->condition.notify_all();
      });
  add_method(
      "MTLCommandQueue", "commandBuffer", +[](CommandQueue* q, Selector* s) -> Object* {
        return fails(s) ? nullptr : create_autoreleased<CommandBuffer>(*q);
      });
  add_method("MTLCommandBuffer", "encodeWaitForEvent:value:", encode_wait);
  add_method("MTLCommandBuffer", "commit", commit);
  add_method("MTLCommandBuffer", "waitUntilCompleted", wait_completed);
  add_method(
      "MTLCommandBuffer", "status",
      +[](CommandBuffer* b, Selector*) -> size_t { return with_lock(b, [&] { return b->status; }); });
  add_method(
      "MTLCommandBuffer", "error",
      +[](CommandBuffer* b, Selector*) -> Object* { return with_lock(b, [&] { return b->error.get(); }); });
  add_method(
      "MTLCommandBuffer", "GPUStartTime",
      +[](CommandBuffer* b, Selector*) { return with_lock(b, [&] { return b->start; }); });
  add_method(
      "MTLCommandBuffer", "GPUEndTime",
      +[](CommandBuffer* b, Selector*) { return with_lock(b, [&] { return b->end; }); });
  add_encoders();
}

}  // namespace tg::fake_metal
