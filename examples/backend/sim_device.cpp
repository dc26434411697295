/// \file SIM, a backend in one file: memory of its own, two queues, groups of threads. See docs/new_backend.md.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "tinygrad/base/binary.h"
#include "tinygrad/render/listing.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/interp.h"
#include "tinygrad/target/device_traits.h"
#include "tinygrad/uop/serialize.h"
#include "tinygrad/uop/spec.h"

namespace sim {
using namespace tg;
constexpr int64_t kMaxThreads = 1024 /* of a group */, kMemoryBytes = int64_t{1} << 30 /* of a device */;

// ---- memory: a block is known by a number; its bytes are where only the device sees them ----

using Block = std::shared_ptr<std::vector<std::byte>>;  // held by the commands that use it

class Memory final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    std::lock_guard lock(mutex_);
    blocks_[++last_] = std::make_shared<std::vector<std::byte>>(bytes, std::byte{0xa5});
    return reinterpret_cast<void*>(last_);
  }
  void free(void* block, size_t) noexcept override {
    std::lock_guard lock(mutex_);
    blocks_.erase(reinterpret_cast<uintptr_t>(block));
  }
  Block find(void* block) {
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(reinterpret_cast<uintptr_t>(block));
    TG_CHECK(DeviceError, it != blocks_.end(), "[SIM] got a handle of no memory");
    return it->second;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  uintptr_t last_ = 0;
};

std::byte* bytes_at(const Block& block, size_t offset, size_t n) {
  TG_CHECK(DeviceError, offset + n <= block->size(), "[SIM] got a copy beyond the end of its memory");
  return block->data() + offset;
}

// ---- queues: one thread each; the first failure stops all commands of the device ----
using Command = std::function<void()>;

struct Failure {
  std::mutex mutex;
  std::string cause;  // the first one; empty while there is none
  void set(const char* what) {
    std::lock_guard lock(mutex);
    if (cause.empty()) cause = what;
  }
  bool happened() {
    std::lock_guard lock(mutex);
    return !cause.empty();
  }
  void check() { TG_CHECK(DeviceError, !happened(), "[SIM] the device has failed: ", cause); }
};

class SimEvent final : public Event {
 public:
  explicit SimEvent(Failure& failure) : failure_(failure) {}
  bool done() override { return reached_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void wait() override {
    reached_.wait();
    failure_.check();
  }
  std::optional<double> seconds_since(const Event& earlier) const override {
    return std::chrono::duration<double>(reached_.get() - static_cast<const SimEvent&>(earlier).reached_.get()).count();
  }
  void reach() { promise_.set_value(std::chrono::steady_clock::now()); }

 private:
  Failure& failure_;
  std::promise<std::chrono::steady_clock::time_point> promise_;
  std::shared_future<std::chrono::steady_clock::time_point> reached_ = promise_.get_future();
};

class SimQueue final : public Queue {
 public:
  SimQueue(Memory& memory, Failure& failure) : memory_(memory), failure_(failure), thread_([this] { work(); }) {}
  ~SimQueue() override {
    push({});
    thread_.join();
  }
  void enqueue(Command command) {
    failure_.check();
    push([this, command = std::move(command)] {
      if (!failure_.happened()) command();
    });
  }
  void copy_in(MemoryPlace dst, const void* src, size_t n) override {
    enqueue([=, to = memory_.find(dst.block)] { std::memcpy(bytes_at(to, dst.offset, n), src, n); });
  }
  void copy_out(void* dst, MemoryPlace src, size_t n) override {
    enqueue([=, from = memory_.find(src.block)] { std::memcpy(dst, bytes_at(from, src.offset, n), n); });
  }
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override { enqueue(copying(dst, src, n)); }
  Command copying(MemoryPlace dst, MemoryPlace src, size_t n) {
    return [=, to = memory_.find(dst.block), from = memory_.find(src.block)] {
      std::memcpy(bytes_at(to, dst.offset, n), bytes_at(from, src.offset, n), n);
    };
  }
  EventRef record() override {
    auto event = std::make_shared<SimEvent>(failure_);
    push([event] { event->reach(); });
    return event;
  }
  void wait_for(const EventRef& event) override {
    enqueue([event] { event->wait(); });
  }
  void wait() override { record()->wait(); }

 private:
  void push(Command command) {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    condition_.notify_one();
  }
  void work() {
    for (;;) {
      Command command;
      {
        std::unique_lock lock(mutex_);
        condition_.wait(lock, [&] { return !commands_.empty(); });
        command = std::move(commands_.front());
        commands_.pop_front();
      }
      if (!command) return;
      try {
        command();
      } catch (const std::exception& e) { failure_.set(e.what()); }
    }
  }

  Memory& memory_;
  Failure& failure_;
  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<Command> commands_;
  std::thread thread_;  // last: it uses the others
};

// ---- kernels: what a renderer prints, a compiler turns into bytes, a loader into something that is launched ----

class SimRenderer final : public Renderer {
 public:
  using Renderer::Renderer;
  OpSet ops() const override { return groups::kAlu; }
  bool supports(DType d) const override { return !d.is_weak() && !d.is_void(); }
  bool has_locals() const override { return true; }
  /// A listing for people, then the machine code in hexadecimal.
  std::string render(const Program& p) const override {
    ByteWriter w;
    w.text(p.name);
    w.value<int32_t>(p.nbuffers);
    w.size(p.vars.size());
    for (const std::string& v : p.vars) w.text(v);
    ArenaScope scope(*p.arena);
    write_graph(w, p.insts);
    std::string source = ListingRenderer(target()).render(p) + kCode;
    for (const uint8_t byte : w.bytes) source += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return source;
  }
  static inline const std::string kCode = ".code ";
};

class SimCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override {
    const size_t at = source.find(SimRenderer::kCode);
    TG_CHECK(CompileError, at != std::string::npos, "[SIM] got a source without machine code");
    std::vector<uint8_t> bytes;
    for (size_t i = at + SimRenderer::kCode.size(); i + 1 < source.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoi(source.substr(i, 2), nullptr, 16)));
    return bytes;
  }
  std::string cache_key() const override { return str("sim 1 ", graph_format()); }
  std::string assembly(const std::string& source) override { return source.substr(0, source.find(SimRenderer::kCode)); }
  std::string cache_table() const override { return "compile_sim"; }
};

std::shared_ptr<const Program> decode(std::span<const uint8_t> binary, const std::string& symbol) {
  ByteReader r(binary, "[SIM] machine code");
  auto p = std::make_shared<Program>();
  p->name = r.text();
  r.check(p->name == symbol, "another kernel");
  p->nbuffers = r.value<int32_t>();
  p->vars.resize(r.size(8));
  for (std::string& v : p->vars) v = r.text();
  p->arena = std::make_shared<Arena>();
  ArenaScope scope(*p->arena);
  p->insts = read_graph(r);
  verify_program(p->insts, "load");
  return p;
}

class SimExecutable final : public Executable {
 public:
  SimExecutable(std::shared_ptr<const Program> p, Memory& memory, SimQueue& queue)
      : interpreter_(std::make_shared<Interpreter>(std::move(p))), memory_(memory), queue_(queue) {}
  void launch(const LaunchArgs& args) override { queue_.enqueue(launching(args)); }
  Command launching(const LaunchArgs& args) {
    const int64_t threads = args.local[0] * args.local[1] * args.local[2];
    TG_CHECK(DeviceError, threads <= kMaxThreads, "[SIM] got groups of ", threads, " threads, at most ", kMaxThreads);
    std::vector<std::pair<Block, int64_t>> buffers;
    for (int i = 0; i < args.nbuffers; i++) buffers.emplace_back(memory_.find(args.buffers[i]), args.offsets[i]);
    std::vector<int64_t> vars(args.vars, args.vars + args.nvars);
    return [interpreter = interpreter_, size = LaunchSize(args), buffers = std::move(buffers), vars = std::move(vars)] {
      std::vector<void*> memory;
      for (const auto& [block, offset] : buffers) memory.push_back(block->data() + offset);
      interpreter->run_groups(memory.data(), vars.data(), size, 0, size.global[0] * size.global[1] * size.global[2]);
    };
  }

 private:
  std::shared_ptr<const Interpreter> interpreter_;  // commands may outlive the executable
  Memory& memory_;
  SimQueue& queue_;
};

/// Commands that are one command of the queue; only those with new arguments are made again.
class SimBatch final : public Batch {
 public:
  SimBatch(std::span<const BatchCommand> batch, SimQueue& queue)
      : batch_(batch), queue_(queue), commands_(std::make_shared<std::vector<Command>>(batch.size())) {}
  void submit(std::span<const uint32_t> changed) override {
    if (!changed.empty())
      commands_ = std::make_shared<std::vector<Command>>(*commands_);  // the queue may run the old one
    for (const uint32_t i : changed) (*commands_)[i] = command(batch_[i]);
    queue_.enqueue([commands = commands_] {
      for (const Command& c : *commands) c();
    });
  }

 private:
  Command command(const BatchCommand& c) {
    const LaunchArgs& a = c.args;
    if (c.executable) return static_cast<SimExecutable&>(*c.executable).launching(a);
    const auto place = [&](int i) { return MemoryPlace{a.buffers[i], static_cast<size_t>(a.offsets[i])}; };
    return queue_.copying(place(0), place(1), c.copy_bytes);
  }
  std::span<const BatchCommand> batch_;
  SimQueue& queue_;
  std::shared_ptr<std::vector<Command>> commands_;
};

// ---- the device, and its entry in the registries ----

class SimDevice final : public Device {
 public:
  explicit SimDevice(const std::string& name)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<Memory>(), name, kMemoryBytes / 4, kMemoryBytes)) {
    set_device_traits("SIM", {.row_kernels = false, .row_groups = true, .attention_kernels = true});  // of grids
    target_.device = target_.renderer = target_.arch = "SIM";
    target_.grid_limit[0] = INT64_MAX;
  }
  bool handles_are_addresses() const override { return false; }
  Queue& queue() override { return compute_; }
  Queue& transfer_queue() override { return transfer_; }
  const Target& target() override { return target_; }
  Compiler& compiler(const Target&) override { return compiler_; }
  Compiler& source_compiler(const Target&) override { throw DeviceError("[SIM] has no language for kernels of users"); }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    return std::make_shared<SimExecutable>(decode(binary, symbol), memory_, compute_);
  }
  std::unique_ptr<Batch> record_batch(std::span<const BatchCommand> commands) override {
    return std::make_unique<SimBatch>(commands, compute_);
  }

 private:
  Memory& memory_ = static_cast<Memory&>(allocator().uncounted());
  Failure failure_;
  SimQueue compute_{memory_, failure_}, transfer_{memory_, failure_};
  SimCompiler compiler_;
  Target target_;
};

const RegisterRenderer renderer{"SIM", [](const Target& t) { return std::make_unique<SimRenderer>(t); }};
const RegisterDevice device{{.name = "SIM",
                             .open = [](const std::string& name) { return std::make_unique<SimDevice>(name); },
                             .describe = [] { return std::string("an accelerator, simulated on the host"); }}};

}  // namespace sim
