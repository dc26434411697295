/// \file Metal: batches as indirect command buffers, which the GPU reads again and again.
#include <algorithm>
#include <cstring>

#include "tinygrad/runtime/metal_device.h"

namespace tg {
namespace {
constexpr size_t kMostCommands = 16384;         ///< of an indirect command buffer
constexpr size_t kMostBuffers = 31;             ///< of a kernel, variables included
constexpr size_t kConcurrentDispatch = 1 << 5;  ///< MTLIndirectCommandTypeConcurrentDispatch
constexpr size_t kShared = 0;                   ///< MTLResourceStorageModeShared
constexpr size_t kVariableStride = 256;         ///< what offsets of constant buffers are multiples of on all GPUs
constexpr int64_t kMostOffset = UINT32_MAX;     ///< in an indirect command

/// Commands next to one another: launches, or one copy.
struct Stretch {
  uint32_t begin, end;
  bool copies;
};

std::vector<Stretch> stretches_of(std::span<const BatchCommand> commands) {
  std::vector<Stretch> out;
  for (uint32_t i = 0; i < commands.size(); i++) {
    const bool copies = !commands[i].executable;
    if (!copies && !out.empty() && !out.back().copies) out.back().end = i + 1;
    else out.push_back({i, i + 1, copies});
  }
  return out;
}

bool can_be_recorded(const BatchCommand& c) {
  const LaunchArgs& a = c.args;
  return !a.is_empty() && std::all_of(a.offsets, a.offsets + a.nbuffers, [](int64_t n) { return n <= kMostOffset; });
}

/// A recorded form of the commands. There are two, so that one can be changed while the GPU reads the other.
struct Recording {
  ObjcRef commands;   // MTLIndirectCommandBuffer
  ObjcRef variables;  // MTLBuffer; empty where kernels have none
  std::vector<bool> stale;
  EventRef submitted;  // behind its last submission
};

class MetalBatch final : public Batch {
 public:
  MetalBatch(const MetalContext& context, MetalQueue& queue, std::span<const BatchCommand> commands);
  void submit(std::span<const uint32_t> changed) override;
  bool recorded() const { return recordings_[0].commands && recordings_[1].commands; }

 private:
  void record(Recording& r, uint32_t i) const;
  void submit_each() const;
  void submit_recording(Recording& r, const Stretch& stretch) const;
  void copy(const BatchCommand& c) const;

  MetalQueue& queue_;
  std::span<const BatchCommand> commands_;
  std::vector<Stretch> stretches_;
  std::vector<size_t> first_variable_;  // by command
  Recording recordings_[2];
  int last_ = 0;  // submitted last
};

ObjcRef new_indirect_commands(const MetalContext& context, size_t n) {
  const MetalLibrary& m = metal();
  const ObjcRef descriptor = new_object("MTLIndirectCommandBufferDescriptor");
  m.set_command_types(descriptor.get(), kConcurrentDispatch);
  m.set_inherit_buffers(descriptor.get(), false);
  m.set_inherit_pipeline(descriptor.get(), false);
  m.set_max_kernel_buffers(descriptor.get(), kMostBuffers);
  return ObjcRef::adopt(m.new_indirect_commands(context.gpu.handle.get(), descriptor.get(), n, kShared));
}

MetalBatch::MetalBatch(const MetalContext& context, MetalQueue& queue, std::span<const BatchCommand> commands)
    : queue_(queue), commands_(commands), stretches_(stretches_of(commands)) {
  const AutoreleasePool pool;
  size_t variables = 0;
  for (const BatchCommand& c : commands) {
    first_variable_.push_back(variables);
    variables += static_cast<size_t>(c.args.nvars);
  }
  for (Recording& r : recordings_) {
    r.commands = new_indirect_commands(context, commands.size());
    if (variables)
      r.variables = ObjcRef::adopt(metal().new_buffer(context.gpu.handle.get(), variables * kVariableStride, kShared));
    if (variables && !r.variables) r.commands = {};
    r.stale.assign(commands.size(), true);
  }
}

/// Writes a launch with its present arguments. The barrier orders it behind those before it.
void MetalBatch::record(Recording& r, uint32_t i) const {
  const MetalLibrary& m = metal();
  const BatchCommand& c = commands_[i];
  const LaunchArgs& a = c.args;
  check_metal_size(*c.executable, a);
  const ObjcId command = m.indirect_command_at(r.commands.get(), i);
  m.reset(command);
  m.set_pipeline(command, metal_pipeline(*c.executable));
  const auto nbuffers = static_cast<size_t>(a.nbuffers);
  for (size_t k = 0; k < nbuffers; k++)
    m.set_kernel_buffer(command, metal_buffer(a.buffers[k]), static_cast<size_t>(a.offsets[k]), k);
  for (size_t k = 0; k < static_cast<size_t>(a.nvars); k++) {
    const size_t at = (first_variable_[i] + k) * kVariableStride;
    std::memcpy(static_cast<char*>(m.contents(r.variables.get())) + at, &a.vars[k], sizeof a.vars[k]);
    m.set_kernel_buffer(command, r.variables.get(), at, nbuffers + k);
  }
  m.dispatch_concurrent(command, metal_size(a.global), metal_size(a.local));
  m.set_barrier(command);
}

void MetalBatch::copy(const BatchCommand& c) const {
  const LaunchArgs& a = c.args;
  queue_.copy({a.buffers[0], static_cast<size_t>(a.offsets[0])}, {a.buffers[1], static_cast<size_t>(a.offsets[1])},
              c.copy_bytes);
}

void MetalBatch::submit_each() const {
  for (const BatchCommand& c : commands_) {
    if (c.executable) c.executable->launch(c.args);
    else copy(c);
  }
}

void MetalBatch::submit_recording(Recording& r, const Stretch& stretch) const {
  std::vector<ObjcId> buffers;
  std::vector<ObjcRef> kept{r.commands};
  for (uint32_t i = stretch.begin; i < stretch.end; i++) {
    const LaunchArgs& a = commands_[i].args;
    for (int k = 0; k < a.nbuffers; k++) buffers.push_back(metal_buffer(a.buffers[k]));
    kept.push_back(ObjcRef::share(metal_pipeline(*commands_[i].executable)));
  }
  if (r.variables) buffers.push_back(r.variables.get());
  std::sort(buffers.begin(), buffers.end());
  buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
  for (const ObjcId b : buffers) kept.push_back(ObjcRef::share(b));
  queue_.execute(r.commands.get(), {stretch.begin, stretch.end - stretch.begin}, buffers, std::move(kept));
}

void MetalBatch::submit(std::span<const uint32_t> changed) {
  const AutoreleasePool pool;
  for (Recording& r : recordings_)
    for (const uint32_t i : changed) r.stale[i] = true;
  if (!std::all_of(commands_.begin(), commands_.end(), can_be_recorded)) return submit_each();
  if (!changed.empty()) last_ = 1 - last_;
  Recording& r = recordings_[last_];
  if (!changed.empty() && r.submitted) r.submitted->wait();  // the one before the last
  for (const Stretch& s : stretches_) {
    for (uint32_t i = s.begin; i < s.end; i++) {
      if (!s.copies && r.stale[i]) record(r, i);
      r.stale[i] = false;
    }
  }
  for (const Stretch& s : stretches_) {
    if (s.copies) copy(commands_[s.begin]);
    else submit_recording(r, s);
  }
  r.submitted = queue_.record();
}
}  // namespace

std::unique_ptr<Batch> record_metal_batch(const MetalContext& context, MetalQueue& queue,
                                          std::span<const BatchCommand> commands) {
  const auto fits = [](const BatchCommand& c) {
    return static_cast<size_t>(c.args.nbuffers) + static_cast<size_t>(c.args.nvars) <= kMostBuffers;
  };
  if (!context.gpu.indirect_commands || commands.size() > kMostCommands ||
      !std::all_of(commands.begin(), commands.end(), fits))
    return nullptr;
  auto batch = std::make_unique<MetalBatch>(context, queue, commands);
  return batch->recorded() ? std::move(batch) : nullptr;
}

}  // namespace tg
