/// \file Fake Metal: indirect command buffers. They hold nothing they use, run in any order that their barriers allow,
/// and must not change while a GPU reads them.
#include <algorithm>
#include <random>

#include "fake_metal/fake_objects.h"

namespace tg::fake_metal {
namespace {
constexpr size_t kMostCommands = 16384, kDispatches = 32;

IndirectCommands::Command* changed(IndirectCommand* self) {
  if (self->of->in_flight > 0) violation("an indirect command that changes while the GPU reads it");
  return &self->of->commands[self->index];
}

Object* new_indirect(Device*, Selector* selector, IndirectDescriptor* d, size_t n, size_t options) {
  if (d->types != kDispatches || d->inherits_buffers || d->inherits_pipeline || d->most_buffers > kMostSlots)
    violation("a descriptor of other indirect commands");
  if (n == 0 || n > kMostCommands || options != 0) violation(std::to_string(n) + " indirect commands");
  return fails(selector) ? nullptr : create<IndirectCommands>(n, d->most_buffers);
}

/// Whether the GPU can use everything that a command names.
bool check_resident(const IndirectCommands::Command& c, const std::set<const Object*>& resources) {
  if (!c.set) {
    violation("an indirect command that was never set");
    return false;
  }
  if (!is_alive(c.dispatch.pipeline)) {
    violation("a pipeline of an indirect command is gone");
    return false;
  }
  for (const Slot& s : c.dispatch.slots) {
    if (!s.buffer) continue;
    const bool alive = is_alive(s.buffer);
    if (!alive || !resources.count(s.buffer)) {
      violation(alive ? "a buffer of an indirect command is not resident" : "a buffer of an indirect command is gone");
      return false;
    }
  }
  return true;
}
}  // namespace

void execute_indirect(IndirectCommands& c, MetalRange range, const std::set<const Object*>& resources) {
  if (range.location + range.length > c.commands.size()) return violation("indirect commands beyond the last");
  static thread_local std::minstd_rand random(3);
  const size_t end = range.location + range.length;
  for (size_t begin = range.location, next; begin < end; begin = next) {
    for (next = begin + 1; next < end && !c.commands[next].barrier;) next++;
    std::vector<size_t> order;
    for (size_t i = begin; i < next; i++) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      if (!check_resident(c.commands[i], resources) || !check_dispatch(c.commands[i].dispatch)) return;
      run_dispatch(c.commands[i].dispatch);
      faults().indirect++;
    }
  }
}

void add_indirect_methods() {
  const char* descriptor = IndirectDescriptor::kClass;
  add_method(
      "MTLIndirectCommandBufferDescriptor class", "new",
      +[](Object*, Selector*) -> Object* { return create<IndirectDescriptor>(); });
  add_method(descriptor, "setCommandTypes:", +[](IndirectDescriptor* d, Selector*, size_t types) { d->types = types; });
  add_method(
      descriptor, "setInheritBuffers:", +[](IndirectDescriptor* d, Selector*, bool on) { d->inherits_buffers = on; });
  add_method(
      descriptor,
      "setInheritPipelineState:", +[](IndirectDescriptor* d, Selector*, bool on) { d->inherits_pipeline = on; });
  add_method(
      descriptor,
      "setMaxKernelBufferBindCount:", +[](IndirectDescriptor* d, Selector*, size_t n) { d->most_buffers = n; });
  add_method("MTLDevice", "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:", new_indirect);
  add_method(
      "MTLIndirectCommandBuffer",
      "indirectComputeCommandAtIndex:", +[](IndirectCommands* c, Selector*, size_t i) -> Object* {
        if (i >= c->commands.size()) violation("an indirect command beyond the last");
        return create_autoreleased<IndirectCommand>(*c, i);
      });
  const char* command = IndirectCommand::kClass;
  add_method(command, "reset", +[](IndirectCommand* c, Selector*) { *changed(c) = {}; });
  add_method(
      command, "setComputePipelineState:", +[](IndirectCommand* c, Selector*, Pipeline* p) {
        if (!p->indirect) violation("a pipeline that is not for indirect commands");
        changed(c)->dispatch.pipeline = p;
      });
  add_method(
      command,
      "setKernelBuffer:offset:atIndex:", +[](IndirectCommand* c, Selector*, Buffer* b, size_t offset, size_t i) {
        if (i >= c->of->most_buffers || offset > UINT32_MAX) violation("an argument that does not fit");
        set_slot(changed(c)->dispatch.slots, b, offset, i);
      });
  add_method(
      command, "concurrentDispatchThreadgroups:threadsPerThreadgroup:",
      +[](IndirectCommand* c, Selector*, MetalSize groups, MetalSize threads) {
        changed(c)->dispatch.size = launch_size(groups, threads);
        changed(c)->set = true;
      });
  add_method(command, "setBarrier", +[](IndirectCommand* c, Selector*) { changed(c)->barrier = true; });
}

}  // namespace tg::fake_metal
