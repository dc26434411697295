/// \file The parts of a WebGPU device: context, memory, queue, compiler, loaded kernels. Included by its own sources
/// and their tests alone.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/render/wgsl/wgsl.h"
#include "tinygrad/runtime/compiler.h"
#include "tinygrad/runtime/queue.h"
#include "tinygrad/runtime/webgpu_library.h"
#include "tinygrad/target/target.h"

namespace tg {

/// The first failure of a device: after it every command fails with this cause.
class WebGpuFailure {
 public:
  void set(const std::string& cause);
  bool happened() const { return happened_.load(std::memory_order_acquire); }
  std::string cause() const;

 private:
  std::atomic<bool> happened_{false};
  mutable std::mutex mutex_;
  std::string cause_;
};

/// An opened device; lives until the process ends.
struct WebGpuContext {
  WebGpuContext(webgpu::Adapter a, std::string device_name);
  const webgpu::Functions& f;
  webgpu::Adapter adapter;
  std::string name;  ///< canonical: "WEBGPU", "WEBGPU:1"
  webgpu::Handle device = nullptr, queue = nullptr;
  mutable WebGpuFailure failure;
  /// Held during calls of the library that belong together: error scopes and command encoders are the device's.
  mutable std::mutex mutex;

  /// Throws DeviceError with the first cause when the device has failed.
  void check() const;
  /// Lets the library call what waits for it; `wait`: until the device has done all that was submitted.
  void poll(bool wait) const;
  /// Calls `create` and returns the errors it made, which do not fail the device; empty: none.
  template <class F> std::string errors_of(const F& create) const {
    std::lock_guard lock(mutex);
    begin_scopes();
    create();
    return end_scopes(nullptr);
  }
  /// Allocates a buffer; null when memory is exhausted. Throws OutOfMemoryError for a size that the device never gives.
  webgpu::Handle create_buffer(uint64_t bytes, webgpu::Flags usage) const;

 private:
  std::span<const uint32_t> scopes() const;
  void begin_scopes() const;
  std::string end_scopes(bool* out_of_memory) const;
};

/// What a handle of device memory points to.
struct WebGpuBlock {
  webgpu::Handle buffer = nullptr;
  uint64_t bytes = 0;  ///< whole words
};

/// A kernel that can be enqueued.
struct WebGpuKernel {
  WgslHeader header;
  webgpu::Handle pipeline = nullptr, layout = nullptr;
  mutable bool has_run = false;  ///< guarded by the queue
};
/// A buffer as a kernel sees it.
struct WebGpuBinding {
  webgpu::Handle buffer = nullptr;
  uint64_t offset = 0, bytes = 0;
  uint32_t number = 0;
};

/// The queue of a device. Commands are collected in an encoder that flush() submits; arguments of kernels in one buffer
/// that is written then.
class WebGpuQueue final : public Queue {
 public:
  explicit WebGpuQueue(const WebGpuContext& context);
  void copy_in(MemoryPlace dst, const void* src, size_t n) override;
  void copy_out(void* dst, MemoryPlace src, size_t n) override;
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override;
  EventRef record() override;
  void wait_for(const EventRef&) override {}  // there is one queue
  void flush() override;
  void wait() override;

  /// Enqueues a kernel.
  void launch(const WebGpuKernel& kernel, std::span<const WebGpuBinding> bindings, std::span<const uint32_t> arguments,
              const int64_t groups[3]);
  /// Returns whether submission `number` is done, and what it reads back has arrived.
  bool is_done(uint64_t number);
  void wait_until(uint64_t number);
  /// Returns the time of a clock that was read, in seconds.
  std::optional<double> time_of(uint32_t clock);
  void release_clock(uint32_t clock);

 private:
  /// Memory of the device that is copied to the host when it is mapped.
  struct Readback {
    webgpu::Handle buffer = nullptr;
    void* to = nullptr;
    uint64_t skip = 0, bytes = 0, mapped_bytes = 0, submission = 0;
    std::shared_ptr<std::atomic<int>> state;  ///< 0: not yet, 1: mapped, 2: failed
  };
  webgpu::Handle encoder();
  webgpu::Handle pass();
  void end_pass();
  void submit();
  void await_compiler();
  bool reached(uint64_t number);
  void collect();
  void copy_bytes(webgpu::Handle dst, uint64_t dst_offset, webgpu::Handle src, uint64_t src_offset, uint64_t n);
  void dispatch(const WebGpuKernel& kernel, std::span<const WebGpuBinding> bindings,
                std::span<const uint32_t> arguments, const int64_t groups[3]);
  const WebGpuKernel& byte_copy_kernel();
  void read_back(webgpu::Handle buffer, uint64_t offset, uint64_t n, void* to, uint64_t skip, uint64_t take);
  void map_readbacks();

  const WebGpuContext& context_;
  std::mutex mutex_;  // guards what follows
  webgpu::Handle encoder_ = nullptr, pass_ = nullptr;
  webgpu::Handle arguments_ = nullptr;     // buffer of the kernels' arguments
  std::vector<uint32_t> given_;            // its contents, of the commands in the encoder
  std::vector<webgpu::Handle> temporary_;  // buffers of the commands in the encoder
  std::deque<Readback> readbacks_;
  uint64_t submitted_ = 0;
  bool wrote_ = false;     // data since the last submission
  bool compiles_ = false;  // kernels run for the first time
  std::shared_ptr<std::atomic<uint64_t>> done_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::unique_ptr<WebGpuKernel> byte_copy_;
  webgpu::Handle queries_ = nullptr;
  std::vector<uint32_t> free_clocks_;
};

/// WGSL, which the library checks when it is compiled: programs are sources.
class WebGpuCompiler final : public Compiler {
 public:
  explicit WebGpuCompiler(const WebGpuContext& context) : context_(context) {}
  std::vector<uint8_t> compile(const std::string& source) override;
  std::string cache_key() const override;
  std::string assembly(const std::string& source) override;
  std::string cache_table() const override { return "compile_webgpu"; }

 private:
  const WebGpuContext& context_;
};

/// Makes a kernel of a source. Throws FormatError for what is none or is called otherwise, CompileError for what the
/// library refuses.
WebGpuKernel make_webgpu_kernel(const WebGpuContext& context, std::string_view source, const std::string& symbol);
/// Loads a program.
std::shared_ptr<Executable> load_webgpu(const WebGpuContext& context, WebGpuQueue& queue,
                                        std::span<const uint8_t> binary, const std::string& symbol);

/// Returns the target of an adapter with these limits, for the renderer that DEV names behind "WEBGPU:". Throws
/// DeviceError for any but WGSL.
Target webgpu_target(const webgpu::Adapter& adapter, const std::string& renderer, const std::string& arch);

}  // namespace tg
