/// \file Memory of GPUs, and pinned memory of the host.
#include "tinygrad/runtime/gpu_device.h"

namespace tg {
namespace {

/// Blocks are addresses. With pools, allocating and freeing are commands of a stream of their own: kernels and copies
/// wait for an allocation, a block is freed behind all of them, and the host waits for neither.
class GpuAllocator final : public Allocator {
 public:
  explicit GpuAllocator(const GpuContext& context) : context_(context) {}

  void* allocate(size_t bytes) override {
    context_.enter();
    const GpuFunctions& f = context_.driver.f;
    void* block = nullptr;
    const int error = context_.pools ? f.allocate_async(&block, bytes, context_.memory) : f.allocate(&block, bytes);
    if (error == gpu_error::kOutOfMemory) return nullptr;
    if (error) context_.fail(error, (context_.pools ? f.allocate_async.symbol : f.allocate.symbol));
    if (!context_.pools) return block;
    try {
      context_.order(context_.compute, context_.memory);
      context_.order(context_.transfer, context_.memory);
    } catch (...) {
      f.release_async(block, context_.memory);
      throw;
    }
    return block;
  }

  void free(void* block, size_t) noexcept override {
    if (!context_.enter_quietly()) return;
    const GpuFunctions& f = context_.driver.f;
    if (context_.pools && free_in_order(block)) return;
    for (void* stream : {context_.compute, context_.transfer})
      context_.note(f.synchronize_stream(stream), f.synchronize_stream.symbol);
    // Also for a block of a pool, whose stream has been waited for.
    context_.note(f.release(block), f.release.symbol);
  }

 private:
  bool free_in_order(void* block) noexcept {
    try {
      context_.order(context_.memory, context_.compute);
      context_.order(context_.memory, context_.transfer);
      context_.call(context_.driver.f.release_async, block, context_.memory);
      return true;
    } catch (const Error&) { return false; }
  }
  const GpuContext& context_;
};

class PinnedAllocator final : public Allocator {
 public:
  explicit PinnedAllocator(const GpuContext& context) : context_(context) {}
  void* allocate(size_t bytes) override {
    context_.enter();
    const auto& pin = context_.driver.f.allocate_pinned;
    constexpr unsigned kPortable = 1;  // pinned for every device
    void* memory = nullptr;
    const int error = pin(&memory, bytes, kPortable);
    if (error == gpu_error::kOutOfMemory) return nullptr;
    if (error) context_.fail(error, pin.symbol);
    return memory;
  }
  void free(void* block, size_t) noexcept override {
    if (!context_.enter_quietly()) return;
    const auto& unpin = context_.driver.f.release_pinned;
    context_.note(unpin(block), unpin.symbol);
  }
  void* host_pointer(void* block) const override { return block; }

 private:
  const GpuContext& context_;
};
}  // namespace

std::unique_ptr<Allocator> make_gpu_allocator(const GpuContext& context) {
  return std::make_unique<GpuAllocator>(context);
}
std::unique_ptr<Allocator> make_pinned_allocator(const GpuContext& context) {
  return std::make_unique<PinnedAllocator>(context);
}

}  // namespace tg
