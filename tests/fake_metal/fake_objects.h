/// \file The objects of fake Metal, over host memory.
#pragma once
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fake_driver/program_image.h"
#include "fake_metal/objc_runtime.h"
#include "tinygrad/runtime/interp.h"

namespace tg::fake_metal {
using namespace fake_objc;
using fake::ProgramImage;

/// Faults that a test asked for, and what it may look at.
struct Faults {
  std::mutex mutex;
  std::map<std::string, int> messages;  // by selector: how many until the one that fails
  int commands = 0;                     // command buffers until the one that fails; 0: none
  int delay = 0;                        // microseconds
  std::atomic<int64_t> indirect{0};     // commands executed
};
Faults& faults();
/// Whether this message is the one that a test wants to fail.
bool fails(Selector* selector);

struct String final : Object {
  static constexpr const char* kClass = "NSString";
  explicit String(std::string t) : Object(class_of(kClass)), text(std::move(t)) {}
  const std::string text;
};
struct Error final : Object {
  static constexpr const char* kClass = "NSError";
  explicit Error(std::string t) : Object(class_of(kClass)), text(std::move(t)) {}
  const std::string text;
};
/// Sets an error that the caller does not own.
void set_error(Object** error, const std::string& text);

struct Array final : Object {
  static constexpr const char* kClass = "NSArray";
  Array() : Object(class_of(kClass)) {}
  std::vector<Held<Object>> objects;
};

struct Device final : Object {
  static constexpr const char* kClass = "MTLDevice";
  Device(std::string n, int64_t f) : Object(class_of(kClass)), name(std::move(n)), family(f) {}
  const std::string name;
  const int64_t family;
  std::atomic<int64_t> bytes{0};  // allocated
};
constexpr size_t kMostBufferBytes = size_t{256} << 20, kMemoryBytes = size_t{1} << 30, kGroupBytes = 32 << 10,
                 kMostThreads = 1024, kMostSlots = 31;

/// Memory, with a guard behind it.
struct Buffer final : Object {
  static constexpr const char* kClass = "MTLBuffer";
  Buffer(Device& device, size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Device& device;
  const size_t length;
  std::byte* const data;
};

struct CompileOptions final : Object {
  static constexpr const char* kClass = "MTLCompileOptions";
  CompileOptions() : Object(class_of(kClass)) {}
  bool fast_math = true;
};

struct Library final : Object {
  static constexpr const char* kClass = "MTLLibrary";
  explicit Library(ProgramImage i) : Object(class_of(kClass)), image(std::make_shared<ProgramImage>(std::move(i))) {}
  const std::shared_ptr<const ProgramImage> image;
};
struct Function final : Object {
  static constexpr const char* kClass = "MTLFunction";
  explicit Function(std::shared_ptr<const ProgramImage> i) : Object(class_of(kClass)), image(std::move(i)) {}
  const std::shared_ptr<const ProgramImage> image;
};
struct PipelineDescriptor final : Object {
  static constexpr const char* kClass = "MTLComputePipelineDescriptor";
  PipelineDescriptor() : Object(class_of(kClass)) {}
  Held<Function> function;
  bool indirect = false;
};
struct Pipeline final : Object {
  static constexpr const char* kClass = "MTLComputePipelineState";
  Pipeline(std::shared_ptr<const ProgramImage> i, bool in_indirect);
  size_t most_threads() const {
    const auto n = static_cast<size_t>(image->group[0] * image->group[1] * image->group[2]);
    return n == 0 ? kMostThreads : std::min(n, kMostThreads);
  }
  const std::shared_ptr<const ProgramImage> image;
  const Interpreter interpreter;
  std::vector<size_t> element_bytes;  // by buffer: what its offset is a multiple of
  const bool indirect;
};

struct SharedEvent final : Object {
  static constexpr const char* kClass = "MTLSharedEvent";
  SharedEvent() : Object(class_of(kClass)) {}
  std::mutex mutex;
  std::condition_variable condition;
  uint64_t value = 0;
};

// ---- kernels with their arguments ----

/// A slot of an argument table: a buffer at an offset, or bytes.
struct Slot {
  Buffer* buffer = nullptr;
  size_t offset = 0;
  std::vector<std::byte> bytes;
};
struct Dispatch {
  Pipeline* pipeline = nullptr;
  std::array<Slot, kMostSlots> slots;
  LaunchSize size;
};
/// Checks what Metal's validation checks; returns whether the kernel may run.
bool check_dispatch(const Dispatch& d);
/// Runs a kernel. Throws InternalError for an access outside of a buffer.
void run_dispatch(const Dispatch& d);
/// Checks a buffer as an argument.
void set_slot(std::array<Slot, kMostSlots>& slots, Buffer* buffer, size_t offset, size_t index);
LaunchSize launch_size(MetalSize groups, MetalSize threads);

// ---- command buffers ----

struct CommandBuffer;
/// A thread that executes command buffers in the order they were committed in.
struct CommandQueue final : Object {
  static constexpr const char* kClass = "MTLCommandQueue";
  CommandQueue();
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;
  std::mutex mutex;
  std::condition_variable condition;
  std::deque<Held<CommandBuffer>> committed;
  bool closed = false;
  std::thread thread;
};

struct CommandBuffer final : Object {
  static constexpr const char* kClass = "MTLCommandBuffer";
  explicit CommandBuffer(CommandQueue& q) : Object(class_of(kClass)), queue(&q) {}
  CommandQueue* const queue;
  std::vector<std::function<void()>> commands;
  std::vector<Held<Object>> kept;
  bool committed = false, encoding = false;
  std::mutex mutex;
  std::condition_variable condition;
  size_t status = 0;  // MTLCommandBufferStatus
  Held<Error> error;
  double start = 0, end = 0;  // seconds
};

/// A compute or a blit encoder.
struct Encoder : Object {
  Encoder(Class& c, CommandBuffer& b) : Object(c), commands(&b) { b.encoding = true; }
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  Held<CommandBuffer> commands;
  bool ended = false;
};
struct ComputeEncoder final : Encoder {
  static constexpr const char* kClass = "MTLComputeCommandEncoder";
  explicit ComputeEncoder(CommandBuffer& b) : Encoder(class_of(kClass), b) {}
  Dispatch next;
  std::set<const Object*> resources;  // made resident
};
struct BlitEncoder final : Encoder {
  static constexpr const char* kClass = "MTLBlitCommandEncoder";
  explicit BlitEncoder(CommandBuffer& b) : Encoder(class_of(kClass), b) {}
};

// ---- indirect commands ----

struct IndirectDescriptor final : Object {
  static constexpr const char* kClass = "MTLIndirectCommandBufferDescriptor";
  IndirectDescriptor() : Object(class_of(kClass)) {}
  size_t types = 0, most_buffers = 0;
  bool inherits_buffers = true, inherits_pipeline = true;
};
struct IndirectCommands final : Object {
  static constexpr const char* kClass = "MTLIndirectCommandBuffer";
  IndirectCommands(size_t n, size_t most) : Object(class_of(kClass)), commands(n), most_buffers(most) {}
  struct Command {
    Dispatch dispatch;  // buffers and pipeline are not held
    bool barrier = false, set = false;
  };
  std::vector<Command> commands;
  const size_t most_buffers;
  std::atomic<int> in_flight{0};  // command buffers that execute it
};
/// One command, as it is given to who encodes it.
struct IndirectCommand final : Object {
  static constexpr const char* kClass = "MTLIndirectComputeCommand";
  IndirectCommand(IndirectCommands& c, size_t i) : Object(class_of(kClass)), of(&c), index(i) {}
  Held<IndirectCommands> of;
  const size_t index;
};
/// Executes commands of one, as far as barriers let them in any order. Throws like run_dispatch().
void execute_indirect(IndirectCommands& c, MetalRange range, const std::set<const Object*>& resources);

void add_device_methods();
void add_command_methods();
void add_indirect_methods();

}  // namespace tg::fake_metal
