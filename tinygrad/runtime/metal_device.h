/// \file The parts of a Metal device: context, queues, compiler, loaded kernels, recorded batches. Included by its own
/// sources alone.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/runtime/metal_objc.h"
#include "tinygrad/runtime/queue.h"
#include "tinygrad/target/target.h"

namespace tg {

/// What a GPU is and can.
struct MetalGpu {
  ObjcRef handle;            ///< MTLDevice
  std::string name;          ///< "Apple M3 Max"
  int64_t family = 0;        ///< MTLGPUFamily: 1001 to 1999 of Apple's own, 2001 and 2002 of others in Macs
  int64_t most_bytes = 0;    ///< of a buffer
  int64_t memory_bytes = 0;  ///< that the GPU can use at a time without swapping
  int64_t group_bytes = 0;   ///< memory of a threadgroup
  /// Whether indirect command buffers of kernels are replayed. Apple's GPUs before family 9 (M3) fault when a pipeline
  /// in one was not used otherwise by the encoder, virtual GPUs execute none.
  bool indirect_commands = false;
};

/// Returns all GPUs, the system's default first. Throws DeviceError when there is none.
std::vector<MetalGpu> metal_gpus();

/// The first failure of a device, which all its commands and waits report from then on.
class MetalFailure {
 public:
  void set(const std::string& cause);
  bool happened();
  /// Throws DeviceError after a failure.
  void check(const std::string& device);

 private:
  std::mutex mutex_;
  std::string cause_;  // empty while there is none
};

/// An opened device; lives until the process ends.
struct MetalContext {
  MetalContext(MetalGpu g, std::string device_name) : gpu(std::move(g)), name(std::move(device_name)) {}
  MetalGpu gpu;
  std::string name;  ///< canonical: "METAL", "METAL:1"
  MetalFailure failure;
};

/// Returns the address of a part of a buffer. Throws DeviceError for one that ends behind the buffer.
char* metal_bytes_at(const MetalContext& context, MemoryPlace place, size_t n);
inline MetalSize metal_size(const int64_t (&n)[3]) {
  return {static_cast<size_t>(n[0]), static_cast<size_t>(n[1]), static_cast<size_t>(n[2])};
}
inline ObjcId metal_buffer(void* block) { return static_cast<ObjcId>(block); }

/// A command buffer that was committed, and what it uses beyond what Metal keeps itself.
struct MetalSubmission {
  ObjcRef commands;  ///< MTLCommandBuffer
  uint64_t number = 0;
  std::vector<ObjcRef> kept;
};

class MetalTransferQueue;

/// Kernels and copies within the device. Commands are collected in a command buffer until flush(), record() or so many
/// of them.
class MetalQueue final : public Queue {
 public:
  explicit MetalQueue(MetalContext& context);
  ~MetalQueue() override;
  /// The queue that copies what no command of a GPU can. Set once, before the first command.
  void set_transfers(MetalTransferQueue& transfers) { transfers_ = &transfers; }

  void copy_in(MemoryPlace dst, const void* src, size_t n) override;
  void copy_out(void* dst, MemoryPlace src, size_t n) override;
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override;
  EventRef record() override;
  void wait_for(const EventRef& event) override;
  void flush() override;
  void wait() override;

  /// Enqueues a kernel.
  void launch(ObjcId pipeline, const LaunchArgs& args);
  /// Enqueues commands of an indirect command buffer that use these buffers. `kept` live until the commands are done.
  void execute(ObjcId commands, MetalRange range, std::span<const ObjcId> buffers, std::vector<ObjcRef> kept);
  /// Waits until a submission is done. Throws DeviceError when that or another one failed.
  void wait_until_done(const MetalSubmission& submission);

 private:
  enum class Encoder { kNone, kCompute, kBlit };
  ObjcId begin(Encoder kind);
  void end_encoder();
  void begin_commands();
  void commit();
  void count_command();
  void reap();

  MetalContext& context_;
  MetalTransferQueue* transfers_ = nullptr;
  ObjcRef queue_;  // MTLCommandQueue
  std::mutex mutex_;
  std::shared_ptr<MetalSubmission> open_, last_;  // that collects commands; that was committed last
  ObjcRef encoder_;                               // of `open_`
  Encoder encoding_ = Encoder::kNone;
  ObjcId pipeline_ = nullptr;  // that the encoder has
  int commands_ = 0;           // in `open_`
  uint64_t submitted_ = 0;
  std::deque<std::shared_ptr<MetalSubmission>> in_flight_;
};

/// A point in a transfer queue. The thread reaches it in any case, after a failure too, so no GPU waits forever.
class MetalTransferEvent final : public Event {
 public:
  using Time = std::chrono::steady_clock::time_point;
  MetalTransferEvent(MetalContext& context, uint64_t value) : value(value), context_(context) {}
  bool done() override { return reached_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void wait() override;
  std::optional<double> seconds_since(const Event& earlier) const override;
  void reach() { promise_.set_value(std::chrono::steady_clock::now()); }
  const uint64_t value;  ///< of the queue's shared event

 private:
  MetalContext& context_;
  std::promise<Time> promise_;
  std::shared_future<Time> reached_ = promise_.get_future();
};

/// Copies from and to the host, by a thread: memory is shared. The GPU waits for them by a shared event.
class MetalTransferQueue final : public Queue {
 public:
  explicit MetalTransferQueue(MetalContext& context);
  ~MetalTransferQueue() override;
  void copy_in(MemoryPlace dst, const void* src, size_t n) override;
  void copy_out(void* dst, MemoryPlace src, size_t n) override;
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override;
  EventRef record() override;
  void wait_for(const EventRef& event) override;
  void wait() override;
  ObjcId shared_event() const { return event_.get(); }

 private:
  using Command = std::function<void()>;
  void enqueue(Command copy);
  void push(Command command);
  void work();

  MetalContext& context_;
  ObjcRef event_;  // MTLSharedEvent
  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<Command> commands_;
  uint64_t recorded_ = 0;
  std::thread thread_;  // last: it uses the others
};

/// Checks MSL by Metal's compiler; what is kept and loaded is the source, as Metal has a cache of its own.
class MetalCompiler final : public Compiler {
 public:
  explicit MetalCompiler(const MetalContext& context) : context_(context) {}
  std::vector<uint8_t> compile(const std::string& source) override;
  std::string cache_key() const override;
  std::string assembly(const std::string& source) override;
  std::string cache_table() const override { return "compile_metal"; }

  /// Returns the library of a source that was just compiled, or compiles it. Throws CompileError.
  ObjcRef take_library(const std::string& source);

 private:
  ObjcRef make_library(const std::string& source) const;

  const MetalContext& context_;
  std::mutex mutex_;
  std::map<std::string, ObjcRef> made_;  // by source, until they are loaded
};

/// Loads a source. Throws FormatError for bytes that are none, or lack the kernel `symbol`.
std::shared_ptr<Executable> load_metal(const MetalContext& context, MetalQueue& queue, MetalCompiler& compiler,
                                       std::span<const uint8_t> binary, const std::string& symbol);

/// Records commands as an indirect command buffer, nullptr where the GPU has none for them.
std::unique_ptr<Batch> record_metal_batch(const MetalContext& context, MetalQueue& queue,
                                          std::span<const BatchCommand> commands);
/// Returns the pipeline of a kernel that load_metal() loaded.
ObjcId metal_pipeline(const Executable& executable);
/// Throws DeviceError for groups that such a kernel cannot have.
void check_metal_size(const Executable& executable, const LaunchSize& size);

/// Returns the target for what DEV says behind "METAL:": a renderer, "METAL" or none, or another dialect that a test
/// registered under a name that begins so. Throws DeviceError for anything else.
Target metal_target(const MetalGpu& gpu, const std::string& renderer, const std::string& arch);

}  // namespace tg
