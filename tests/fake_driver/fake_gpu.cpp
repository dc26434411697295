/// \file The machine behind the fake drivers.
#include "fake_driver/fake_gpu.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "fake_driver/program_image.h"
#include "tinygrad/runtime/interp.h"

namespace tg::fake {
namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 101, kInvalidImage = 200,
              kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
              kPeerAlreadyEnabled = 704, kNotSupported = 801;

int number_from_env(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}
const int kDevices = number_from_env("FAKE_GPUS", 16);
const int64_t kDeviceBytes = int64_t{1} << 30;
constexpr size_t kQuarantineBytes = size_t{64} << 20;  // of freed memory, in which late accesses are found
constexpr int kMaxThreads = 1024;

/// How far every stream had come, by its number: what has happened before something.
struct Clock {
  std::vector<uint64_t> reached;
  uint64_t of(size_t stream) const { return stream < reached.size() ? reached[stream] : 0; }
  void set(size_t stream, uint64_t number) {
    if (stream >= reached.size()) reached.resize(stream + 1);
    reached[stream] = number;
  }
  void join(const Clock& other) {
    if (other.reached.size() > reached.size()) reached.resize(other.reached.size());
    for (size_t i = 0; i < other.reached.size(); i++) reached[i] = std::max(reached[i], other.reached[i]);
  }
};

/// A command of a stream by its number.
struct Moment {
  size_t stream = 0;
  uint64_t number = 0;  // 0: none
  bool before(const Clock& clock) const { return clock.of(stream) >= number; }
};

struct Stream {
  int device = 0;
  size_t id = 0;
  std::deque<std::function<int()>> commands;
  uint64_t enqueued = 0, done = 0;
  Clock clock;
  bool destroyed = false;
  std::thread thread;
};

/// One recording of an event.
struct Record {
  Stream* stream = nullptr;
  Moment moment;
  Clock clock;
  std::chrono::steady_clock::time_point time;
};
struct EventObject {
  int device = 0;
  bool destroyed = false;
  std::shared_ptr<Record> record;
};

struct Use {
  const char *begin, *end;
  bool writes;
  Moment moment;
};
struct Block {
  char* begin = nullptr;
  size_t bytes = 0;
  int device = -1;  // -1: pinned memory of the host
  bool pooled = false, freed = false;
  Moment allocated;  // of the pool
  std::vector<Use> uses;
};

struct ModuleObject;
struct FunctionObject {
  ModuleObject* module = nullptr;
  int dynamic_shared = 0;
};
struct ModuleObject {
  int device = 0;
  bool unloaded = false;
  ProgramImage image;
  std::shared_ptr<const Interpreter> interpreter;
  FunctionObject function;
  std::vector<Moment> launches;
};

/// A launch or a copy with its arguments.
struct Work {
  FunctionObject* function = nullptr;  // null: a copy
  LaunchSize size;
  std::vector<void*> buffers;
  std::vector<int64_t> vars;
  char* to = nullptr;
  const char* from = nullptr;
  size_t bytes = 0;
};
struct Node {
  Work work;
  std::vector<Node*> after;
};
struct GraphObject {
  int device = 0;
  bool destroyed = false;
  std::vector<std::unique_ptr<Node>> nodes;
};
struct ExecutableGraph {
  int device = 0;
  bool destroyed = false;
  std::vector<const Node*> original;  // the nodes that handles name
  std::vector<Work> work;
  std::vector<std::vector<size_t>> after;
  std::vector<Moment> launches;
};

struct DeviceState {
  int contexts = 0;  // how often it is open
  int failed = 0;    // the error of every call
  int64_t used = 0;
  int fail_in = 0, fail_with = 0;
  std::vector<bool> peers = std::vector<bool>(static_cast<size_t>(kDevices));
};

struct Failing {
  std::string symbol;
  int in = 0, error = 0;
};

/// Everything; one lock, which commands run without.
struct Machine {
  std::mutex mutex;
  std::condition_variable changed;
  bool initialized = false, peers = true;
  std::vector<DeviceState> devices = std::vector<DeviceState>(static_cast<size_t>(kDevices));
  std::map<void*, std::unique_ptr<Stream>> streams;
  std::map<void*, std::unique_ptr<EventObject>> events;
  std::map<void*, std::unique_ptr<ModuleObject>> modules;
  std::map<void*, std::unique_ptr<GraphObject>> graphs;
  std::map<void*, std::unique_ptr<ExecutableGraph>> executables;
  std::map<const char*, Block> blocks;  // by begin
  std::list<const char*> quarantine;
  size_t quarantined = 0;
  Clock host;  // what the host has waited for
  std::vector<const char*> calls;
  std::vector<Failing> failing;
  std::string violations, taken;
  std::minstd_rand random{1};
  int delay = number_from_env("FAKE_GPU_DELAY_US", 0);
  unsigned last_grid[3] = {}, last_block[3] = {}, last_shared = 0;
};
Machine& machine() {
  static auto* instance = [] {
    auto* m = new Machine;  // its threads run until the process ends
    std::atexit([] {
      if (machine().violations.empty()) return;
      std::fprintf(stderr, "fake GPU: the driver was used wrongly:\n%s", machine().violations.c_str());
      std::fflush(nullptr);
      _exit(97);
    });
    return m;
  }();
  return *instance;
}

thread_local int current_device = -1;

DeviceState& device_at(int device) { return machine().devices[static_cast<size_t>(device)]; }
bool is_device(int device) { return device >= 0 && device < kDevices; }

/// Returns an error where this thread has no device, or one that failed.
int check_current() {
  if (!machine().initialized) return kNotInitialized;
  if (!is_device(current_device) || device_at(current_device).contexts == 0) {
    violation("a call without a current device");
    return kInvalidContext;
  }
  return device_at(current_device).failed;
}

/// Returns what a handle stands for; null, with a violation, where it is none, was destroyed or is another device's.
template <class T> T* find(std::map<void*, std::unique_ptr<T>>& all, void* handle, const char* what, bool here = true) {
  const auto it = all.find(handle);
  if (it == all.end()) {
    violation(str("a handle of no ", what));
    return nullptr;
  }
  T* found = it->second.get();
  if constexpr (requires { found->destroyed; })
    if (found->destroyed) violation(str("a ", what, " that was destroyed"));
  if constexpr (requires { found->unloaded; })
    if (found->unloaded) violation(str("a ", what, " that was unloaded"));
  if (here && found->device != current_device) {
    violation(str("a ", what, " of device ", found->device, " while ", current_device, " is current"));
    return nullptr;
  }
  return found;
}
template <class T> T* add(std::map<void*, std::unique_ptr<T>>& all, void** handle) {
  auto made = std::make_unique<T>();
  T* out = made.get();
  if constexpr (requires { out->device; }) out->device = current_device;
  *handle = out;
  all[out] = std::move(made);
  return out;
}

// ---- streams ----

/// Counts a command of a device that fails when a test wants that.
void count_command(DeviceState& d) {
  if (d.fail_in > 0 && --d.fail_in == 0) d.failed = d.fail_with;
}

void run_stream(Stream* s) {
  Machine& m = machine();
  std::unique_lock lock(m.mutex);
  for (;;) {
    m.changed.wait(lock, [&] { return !s->commands.empty() || s->destroyed; });
    if (s->commands.empty()) return;
    const std::function<int()> command = std::move(s->commands.front());
    s->commands.pop_front();
    DeviceState& d = device_at(s->device);
    count_command(d);
    if (d.failed == 0) {
      const unsigned pause = m.delay > 0 ? m.random() % static_cast<unsigned>(m.delay) : 0;
      lock.unlock();
      if (pause) std::this_thread::sleep_for(std::chrono::microseconds(pause));
      const int error = command();
      lock.lock();
      if (error && d.failed == 0) d.failed = error;
    }
    s->done++;
    m.changed.notify_all();
  }
}

/// Returns the number of the next command, which is then behind everything the host has waited for.
Moment next_moment(Stream& s) {
  s.clock.join(machine().host);
  s.clock.set(s.id, ++s.enqueued);
  return {s.id, s.enqueued};
}
void push(Stream& s, std::function<int()> command) {
  s.commands.push_back(std::move(command));
  machine().changed.notify_all();
}

/// Waits until the stream has come so far; the host knows then. The lock is held.
int wait_until(std::unique_lock<std::mutex>& lock, Stream& s, uint64_t number, const Clock& clock) {
  machine().changed.wait(lock, [&] { return s.done >= number || device_at(s.device).failed; });
  if (const int failed = device_at(s.device).failed) return failed;
  machine().host.join(clock);
  return 0;
}

// ---- memory ----

Block* find_block(const void* address) {
  auto& blocks = machine().blocks;
  auto it = blocks.upper_bound(static_cast<const char*>(address));
  if (it == blocks.begin()) return nullptr;
  --it;
  Block& b = it->second;
  return static_cast<const char*>(address) < b.begin + b.bytes ? &b : nullptr;
}

/// Forgets uses that every later command is behind of.
void forget_uses(Block& b) {
  if (b.uses.size() < 64) return;
  std::erase_if(b.uses, [](const Use& u) { return u.moment.before(machine().host); });
}

/// Notes that a command touches memory; an error where there is none. `exact`: all of the bytes have to be there.
int touch(const Stream& s, Moment moment, const void* address, size_t bytes, bool writes, const char* who,
          bool exact = true) {
  Block* b = find_block(address);
  if (!b) {
    violation(str(who, " uses an address without memory"));
    return kIllegalAddress;
  }
  const char* begin = static_cast<const char*>(address);
  const char* end = begin + bytes;
  if (end > b->begin + b->bytes && exact) {
    violation(str(who, " goes ", end - (b->begin + b->bytes), " bytes beyond its memory"));
    return kIllegalAddress;
  }
  end = std::min<const char*>(end, b->begin + b->bytes);
  if (b->freed) violation(str(who, " uses memory that was freed"));
  if (b->device >= 0 && b->device != s.device && !device_at(s.device).peers[static_cast<size_t>(b->device)])
    violation(str(who, " of device ", s.device, " uses memory of device ", b->device));
  if (!b->allocated.before(s.clock)) violation(str(who, " does not wait for its memory to be allocated"));
  for (Use& u : b->uses)
    if ((u.writes || writes) && u.begin < end && begin < u.end && !u.moment.before(s.clock))
      violation(str(who, writes ? " writes" : " reads", " memory that another stream ", u.writes ? "writes" : "reads",
                    ", in no order"));
  forget_uses(*b);
  for (Use& u : b->uses)
    if (u.moment.stream == s.id && u.begin == begin && u.end == end && u.writes == writes) {
      u.moment = moment;
      return 0;
    }
  b->uses.push_back({begin, end, writes, moment});
  return 0;
}
/// The same for memory of the host, which may be any.
void touch_host(const Stream& s, Moment moment, const void* address, size_t bytes, bool writes, const char* who) {
  if (find_block(address)) touch(s, moment, address, bytes, writes, who);
}

/// Keeps freed memory for a while, filled so that late accesses show.
void retire(Block& b) {
  Machine& m = machine();
  std::memset(b.begin, 0xdb, b.bytes);
  if (b.device >= 0) device_at(b.device).used -= static_cast<int64_t>(b.bytes);
  m.quarantine.push_back(b.begin);
  m.quarantined += b.bytes;
  while (m.quarantined > kQuarantineBytes) {
    const auto oldest = m.blocks.find(m.quarantine.front());
    m.quarantine.pop_front();
    m.quarantined -= oldest->second.bytes;
    std::free(oldest->second.begin);
    m.blocks.erase(oldest);
  }
}

int add_block(void** out, size_t bytes, int device, Moment allocated) {
  if (bytes == 0) return kInvalidValue;
  if (device >= 0) {
    DeviceState& d = device_at(device);
    if (static_cast<int64_t>(bytes) > kDeviceBytes - d.used) return kOutOfMemory;
    d.used += static_cast<int64_t>(bytes);
  }
  Block b;
  b.bytes = bytes;
  b.begin = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  b.device = device;
  b.allocated = allocated;
  b.pooled = allocated.number != 0;
  std::memset(b.begin, 0xa5, bytes);
  *out = b.begin;
  machine().blocks[b.begin] = b;
  return 0;
}

/// Returns the block that begins there and marks it as freed.
Block* free_block(void* address, bool pinned) {
  const auto it = machine().blocks.find(static_cast<char*>(address));
  if (it == machine().blocks.end()) {
    violation("freed what is no memory");
    return nullptr;
  }
  Block& b = it->second;
  if (b.freed || (b.device < 0) != pinned) {
    violation(b.freed ? "freed memory twice" : "freed memory of another kind");
    return nullptr;
  }
  b.freed = true;
  return &b;
}
void check_unused(const Block& b, const Clock& clock, const char* how) {
  for (const Use& u : b.uses)
    if (!u.moment.before(clock)) {
      violation(str("freed memory ", how, " while commands may use it"));
      return;
    }
}

// ---- launches and copies ----

int64_t static_shared(const ProgramImage& image) {
  const int64_t limit = kFace.values[static_cast<int>(GpuAttribute::kSharedBytes)];
  return image.shared_bytes <= limit ? image.shared_bytes : 0;
}

int check_launch(const FunctionObject& f, const GpuLaunch& l) {
  const ProgramImage& image = f.module->image;
  int64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (l.grid[i] == 0 || l.block[i] == 0) return kInvalidValue;
    const int64_t known = image.group[static_cast<size_t>(i)];
    if (known && known != l.block[i])
      violation(str(image.program->name, " is launched with ", l.block[i], " threads along dimension ", i,
                    ", it was compiled for ", known));
    threads *= l.block[i];
  }
  if (threads > kMaxThreads) return kInvalidValue;
  const int64_t needed = image.shared_bytes - static_shared(image);
  if (l.shared_bytes < needed)
    violation(str(image.program->name, " needs ", needed, " bytes of shared memory, got ", l.shared_bytes));
  const int64_t all = l.shared_bytes + static_shared(image);
  const auto limit = [](GpuAttribute a) { return kFace.values[static_cast<int>(a)]; };
  if (all > limit(GpuAttribute::kSharedBytesOptIn)) return kInvalidValue;
  if (kFace.shared_opt_in && all > limit(GpuAttribute::kSharedBytes) &&
      static_cast<int>(l.shared_bytes) > f.dynamic_shared)
    return kInvalidValue;
  return 0;
}

int make_work(const GpuLaunch& l, Work* out) {
  Machine& m = machine();
  for (auto& [key, module] : m.modules)
    if (&module->function == l.function) out->function = &module->function;
  if (!out->function) {
    violation("a handle of no function");
    return kInvalidHandle;
  }
  const ModuleObject& module = *out->function->module;
  if (module.unloaded) violation(str(module.image.program->name, " is launched when its module was unloaded"));
  if (module.device != current_device) {
    violation("a function of another device");
    return kInvalidHandle;
  }
  if (const int error = check_launch(*out->function, l)) return error;
  const size_t buffers = module.image.buffers.size(), vars = module.image.program->vars.size();
  for (size_t i = 0; i < buffers; i++) out->buffers.push_back(*static_cast<void**>(l.parameters[i]));
  for (size_t i = 0; i < vars; i++) out->vars.push_back(*static_cast<int64_t*>(l.parameters[buffers + i]));
  for (int i = 0; i < 3; i++) {
    out->size.global[i] = l.grid[i];
    out->size.local[i] = l.block[i];
  }
  out->size.shared_bytes = l.shared_bytes;
  std::copy(l.grid, l.grid + 3, m.last_grid);
  std::copy(l.block, l.block + 3, m.last_block);
  m.last_shared = l.shared_bytes;
  return 0;
}

/// Notes the memory that a launch or a copy touches.
int touch_all(const Stream& s, Moment moment, const Work& w) {
  if (!w.function) {
    const int error = touch(s, moment, w.from, w.bytes, false, "a copy");
    return error ? error : touch(s, moment, w.to, w.bytes, true, "a copy");
  }
  ModuleObject& module = *w.function->module;
  for (size_t i = 0; i < w.buffers.size(); i++) {
    const ImageBuffer& b = module.image.buffers[i];
    if (b.bytes == 0) continue;
    for (const bool writes : {false, true})
      if (writes ? b.writes : b.reads)
        if (const int error = touch(s, moment, w.buffers[i], static_cast<size_t>(b.bytes), writes,
                                    module.image.program->name.c_str(), b.exact))
          return error;
  }
  std::erase_if(module.launches, [](const Moment& l) { return l.before(machine().host); });
  module.launches.push_back(moment);
  return 0;
}

int run(const Work& w, const std::shared_ptr<const Interpreter>& interpreter) {
  if (!w.function) {
    std::memcpy(w.to, w.from, w.bytes);
    return 0;
  }
  try {
    interpreter->run_groups(w.buffers.data(), w.vars.data(), w.size, 0,
                            w.size.global[0] * w.size.global[1] * w.size.global[2]);
    return 0;
  } catch (const std::exception& e) {
    std::lock_guard lock(machine().mutex);
    violation(str("a kernel ended with ", e.what()));
    return kIllegalAddress;
  }
}
std::shared_ptr<const Interpreter> interpreter_of(const Work& w) {
  return w.function ? w.function->module->interpreter : nullptr;
}

int enqueue(Stream& s, Work w) {
  const Moment moment = next_moment(s);
  const int error = touch_all(s, moment, w);
  push(s, [error, w = std::move(w), interpreter = interpreter_of(w)] { return error ? error : run(w, interpreter); });
  return 0;
}

/// Copies whose one side is the host's.
int enqueue_host_copy(void* stream, void* to, const void* from, size_t bytes, bool in) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  const int error = touch(*s, moment, in ? to : from, bytes, in, "a copy");
  touch_host(*s, moment, in ? from : to, bytes, !in, "a copy");
  push(*s, [=] {
    if (!error) std::memcpy(to, from, bytes);
    return error;
  });
  return 0;
}

bool all_before(const std::vector<Moment>& moments, const Clock& clock) {
  return std::all_of(moments.begin(), moments.end(), [&](const Moment& m) { return m.before(clock); });
}
}  // namespace

int violation(const std::string& what) {
  Machine& m = machine();
  m.violations += what + "\n";
  return kInvalidValue;
}

int call(const char* symbol, const std::function<int()>& body) {
  Machine& m = machine();
  {
    std::lock_guard lock(m.mutex);
    m.calls.push_back(symbol);
    for (Failing& f : m.failing)
      if ((f.symbol.empty() || f.symbol == symbol) && f.in > 0 && --f.in == 0) return f.error;
  }
  return body();
}

// ---- the driver: devices ----

int init(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  machine().initialized = true;
  return 0;
}
int driver_version(int* version) {
  *version = 12040;
  return 0;
}
int count_devices(int* count) {
  *count = kDevices;
  return machine().initialized ? 0 : kNotInitialized;
}
int get_device(int* device, int ordinal) {
  *device = ordinal;
  return is_device(ordinal) ? 0 : kNoDevice;
}
int device_name(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Fake GPU %d", device);
  return is_device(device) ? 0 : kNoDevice;
}
int device_bytes(size_t* bytes, int device) {
  *bytes = static_cast<size_t>(kDeviceBytes);
  return is_device(device) ? 0 : kNoDevice;
}
int device_attribute(int* value, int attribute, int device) {
  if (!is_device(device)) return kNoDevice;
  for (int i = 0; i < static_cast<int>(GpuAttribute::kCount); i++)
    if (kFace.attributes[i] == attribute) {
      *value = kFace.values[i];
      // Every second device has no pools, so that both ways run.
      if (i == static_cast<int>(GpuAttribute::kMemoryPools)) *value = device % 2 == 0;
      return 0;
    }
  return kInvalidValue;
}
int can_access_peer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return kNoDevice;
  *can = machine().peers && device != peer;
  return 0;
}
int error_name(int error, const char** text) {
  *text = error == kOutOfMemory      ? "FAKE_OUT_OF_MEMORY"
          : error == kIllegalAddress ? "FAKE_ILLEGAL_ADDRESS"
                                     : "FAKE_ERROR";
  return 0;
}
int error_text(int error, const char** text) {
  *text = error == kOutOfMemory      ? "out of memory"
          : error == kIllegalAddress ? "an illegal memory access was encountered"
                                     : "some error";
  return 0;
}

int open_context(int device) {
  if (!is_device(device)) return kNoDevice;
  std::lock_guard lock(machine().mutex);
  device_at(device).contexts++;
  return 0;
}
int close_context(int device) {
  std::lock_guard lock(machine().mutex);
  if (!is_device(device) || device_at(device).contexts == 0) return violation("closed a device that is not open");
  device_at(device).contexts--;
  return 0;
}
int set_current(int device) {
  current_device = device;
  return 0;
}
int enable_peer_access(int peer) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (!is_device(peer) || peer == current_device) return kNoDevice;
  auto&& reached = device_at(current_device).peers[static_cast<size_t>(peer)];
  if (reached) return kPeerAlreadyEnabled;
  reached = true;
  return 0;
}
int default_pool(void** pool, int device) {
  *pool = &device_at(device);
  return 0;
}
int set_pool_access(void*, const GpuPoolAccess* access, size_t count) {
  const bool known = count == 1 && access->location_type == 1 && is_device(access->device) && access->flags == 3;
  return known ? 0 : kInvalidValue;
}

// ---- memory ----

int allocate(void** block, size_t bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return add_block(block, bytes, current_device, {});
}
int release(void* block) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Block* b = free_block(block, false);
  if (!b) return kInvalidValue;
  check_unused(*b, machine().host, "of a device");
  retire(*b);
  return 0;
}
int allocate_async(void** block, size_t bytes, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (current_device % 2 != 0) return kNotSupported;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  push(*s, [] { return 0; });
  return add_block(block, bytes, current_device, moment);
}
int release_async(void* block, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  Block* b = s ? free_block(block, false) : nullptr;
  if (!b) return kInvalidValue;
  next_moment(*s);
  check_unused(*b, s->clock, "of a pool");
  const char* begin = b->begin;
  push(*s, [begin] {
    std::lock_guard guard(machine().mutex);
    retire(machine().blocks.at(begin));
    return 0;
  });
  return 0;
}
int allocate_pinned(void** memory, size_t bytes, unsigned) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return add_block(memory, bytes, -1, {});
}
int release_pinned(void* memory) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Block* b = free_block(memory, true);
  if (!b) return kInvalidValue;
  check_unused(*b, machine().host, "of the host");
  retire(*b);
  return 0;
}
int copy_in(void* to, const void* from, size_t bytes, void* stream) {
  return enqueue_host_copy(stream, to, from, bytes, true);
}
int copy_out(void* to, void* from, size_t bytes, void* stream) {
  return enqueue_host_copy(stream, to, from, bytes, false);
}
int copy(void* to, void* from, size_t bytes, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  Work w;
  w.to = static_cast<char*>(to);
  w.from = static_cast<const char*>(from);
  w.bytes = bytes;
  if (w.to < w.from + bytes && w.from < w.to + bytes) violation("a copy of memory that overlaps itself");
  return enqueue(*s, std::move(w));
}
int copy_between(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream) {
  {
    std::lock_guard lock(machine().mutex);
    const Block *a = find_block(to), *b = find_block(from);
    if (!a || !b || a->device != to_device || b->device != from_device)
      return violation("a copy between devices names others than the memory has");
  }
  return copy(to, const_cast<void*>(from), bytes, stream);
}

// ---- streams and events ----

int create_stream(void** stream, unsigned flags) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  if (flags != 1) violation("a stream that waits for the default stream");
  Stream* s = add(m.streams, stream);
  s->id = m.streams.size();
  s->thread = std::thread(run_stream, s);
  return 0;
}
int destroy_stream(void* stream) {
  Machine& m = machine();
  std::thread ended;
  {
    std::lock_guard lock(m.mutex);
    if (const int error = check_current()) return error;
    Stream* s = find(m.streams, stream, "stream");
    if (!s || s->destroyed) return kInvalidHandle;
    s->destroyed = true;
    ended = std::move(s->thread);
    m.changed.notify_all();
  }
  ended.join();
  return 0;
}
int synchronize_stream(void* stream) {
  std::unique_lock lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Clock clock = s->clock;
  return wait_until(lock, *s, s->enqueued, clock);
}
int create_event(void** event, unsigned flags) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (flags != 0) violation("an event without a time");
  add(machine().events, event);
  return 0;
}
int destroy_event(void* event) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  EventObject* e = find(machine().events, event, "event");
  if (!e || e->destroyed) return kInvalidHandle;
  e->destroyed = true;
  return 0;
}
int record_event(void* event, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  EventObject* e = find(machine().events, event, "event");
  Stream* s = find(machine().streams, stream, "stream");
  if (!e || !s) return kInvalidHandle;
  auto record = std::make_shared<Record>();
  record->stream = s;
  record->moment = next_moment(*s);
  record->clock = s->clock;
  e->record = record;
  push(*s, [record] {
    record->time = std::chrono::steady_clock::now();
    return 0;
  });
  return 0;
}
/// The event may be of another device.
int wait_for_event(void* stream, void* event, unsigned flags) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  EventObject* e = find(machine().events, event, "event", false);
  Stream* s = find(machine().streams, stream, "stream");
  if (!e || !s || flags != 0) return kInvalidHandle;
  const std::shared_ptr<Record> record = e->record;
  if (!record) return violation("a stream waits for an event that was never recorded");
  next_moment(*s);
  s->clock.join(record->clock);
  push(*s, [record] {
    Machine& m = machine();
    std::unique_lock guard(m.mutex);
    const Stream& other = *record->stream;
    m.changed.wait(guard, [&] { return other.done >= record->moment.number || device_at(other.device).failed; });
    return device_at(other.device).failed;
  });
  return 0;
}
int query_event(void* event) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  const EventObject* e = find(machine().events, event, "event");
  if (!e) return kInvalidHandle;
  if (!e->record) return 0;
  if (e->record->stream->done < e->record->moment.number) return kNotReady;
  machine().host.join(e->record->clock);
  return 0;
}
int synchronize_event(void* event) {
  std::unique_lock lock(machine().mutex);
  if (const int error = check_current()) return error;
  const EventObject* e = find(machine().events, event, "event");
  if (!e) return kInvalidHandle;
  if (!e->record) return 0;
  const std::shared_ptr<Record> record = e->record;
  return wait_until(lock, *record->stream, record->moment.number, record->clock);
}
int elapsed_time(float* milliseconds, void* begin, void* end) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  const EventObject *a = find(machine().events, begin, "event"), *b = find(machine().events, end, "event");
  if (!a || !b || !a->record || !b->record) return kInvalidHandle;
  for (const EventObject* e : {a, b})
    if (e->record->stream->done < e->record->moment.number) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(b->record->time - a->record->time).count();
  return 0;
}

// ---- kernels ----

int load_module(void** module, const void* image) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  ProgramImage read;
  try {
    read = read_image(image);
  } catch (const std::exception&) { return kInvalidImage; }
  ModuleObject* made = add(m.modules, module);
  made->image = std::move(read);
  made->interpreter = std::make_shared<Interpreter>(made->image.program);
  made->function.module = made;
  return 0;
}
int unload_module(void* module) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  ModuleObject* m = find(machine().modules, module, "module");
  if (!m || m->unloaded) return kInvalidHandle;
  if (!all_before(m->launches, machine().host)) violation("a module is unloaded while launches may run");
  m->unloaded = true;
  return 0;
}
int get_function(void** function, void* module, const char* name) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  ModuleObject* m = find(machine().modules, module, "module");
  if (!m) return kInvalidHandle;
  if (m->image.program->name != name) return kNotFound;
  *function = &m->function;
  return 0;
}
int function_attribute(int* value, int attribute, void* function) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  const auto* f = static_cast<FunctionObject*>(function);
  switch (static_cast<GpuFunctionAttribute>(attribute)) {
    case GpuFunctionAttribute::kGroupThreads: *value = kMaxThreads; return 0;
    case GpuFunctionAttribute::kSharedBytes: *value = static_cast<int>(static_shared(f->module->image)); return 0;
    case GpuFunctionAttribute::kRegisters: *value = 32; return 0;
    case GpuFunctionAttribute::kDynamicSharedBytes: *value = f->dynamic_shared; return 0;
  }
  return kInvalidValue;
}
int allow_dynamic_shared(void* function, int bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  auto* f = static_cast<FunctionObject*>(function);
  if (bytes + static_shared(f->module->image) > kFace.values[static_cast<int>(GpuAttribute::kSharedBytesOptIn)])
    return kInvalidValue;
  f->dynamic_shared = bytes;
  return 0;
}
int launch(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
           unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s || extra) return kInvalidHandle;
  const GpuLaunch l{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters};
  Work w;
  if (const int error = make_work(l, &w)) return error;
  return enqueue(*s, std::move(w));
}

// ---- graphs ----

int create_graph(void** graph, unsigned flags) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (flags != 0) return kInvalidValue;
  add(machine().graphs, graph);
  return 0;
}
int destroy_graph(void* graph) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  GraphObject* g = find(machine().graphs, graph, "graph");
  if (!g || g->destroyed) return kInvalidHandle;
  g->destroyed = true;
  return 0;
}
namespace {
int add_node(void** out, void* graph, void* const* after, size_t count, Work w) {
  GraphObject* g = find(machine().graphs, graph, "graph");
  if (!g) return kInvalidHandle;
  auto node = std::make_unique<Node>();
  node->work = std::move(w);
  for (size_t i = 0; i < count; i++) {
    const auto it = std::find_if(g->nodes.begin(), g->nodes.end(), [&](const auto& n) { return n.get() == after[i]; });
    if (it == g->nodes.end()) return violation("a node depends on one of another graph");
    node->after.push_back(it->get());
  }
  *out = node.get();
  g->nodes.push_back(std::move(node));
  return 0;
}
Work copy_work(void* to, const void* from, size_t bytes) {
  Work w;
  w.to = static_cast<char*>(to);
  w.from = static_cast<const char*>(from);
  w.bytes = bytes;
  return w;
}
int set_node(void* executable, const void* node, Work w) {
  ExecutableGraph* e = find(machine().executables, executable, "instantiated graph");
  if (!e) return kInvalidHandle;
  const auto it = std::find(e->original.begin(), e->original.end(), node);
  if (it == e->original.end()) return violation("a node of another graph is changed");
  Work& now = e->work[static_cast<size_t>(it - e->original.begin())];
  if ((now.function == nullptr) != (w.function == nullptr)) return violation("a node becomes one of another kind");
  now = std::move(w);
  return 0;
}

/// Whether node b runs behind node a.
bool is_behind(const ExecutableGraph& e, size_t b, size_t a) {
  return std::any_of(e.after[b].begin(), e.after[b].end(), [&](size_t n) { return n == a || is_behind(e, n, a); });
}
}  // namespace

int add_kernel_node(void** node, void* graph, void* const* after, size_t count, const GpuLaunch& l) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Work w;
  if (const int error = make_work(l, &w)) return error;
  return add_node(node, graph, after, count, std::move(w));
}
int set_kernel_node(void* executable, void* node, const GpuLaunch& l) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Work w;
  if (const int error = make_work(l, &w)) return error;
  return set_node(executable, node, std::move(w));
}
int add_copy_node(void** node, void* graph, void* const* after, size_t count, void* to, const void* from,
                  size_t bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return add_node(node, graph, after, count, copy_work(to, from, bytes));
}
int set_copy_node(void* executable, void* node, void* to, const void* from, size_t bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return set_node(executable, node, copy_work(to, from, bytes));
}
int instantiate_graph(void** executable, void* graph, unsigned long long flags) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  const GraphObject* g = find(m.graphs, graph, "graph");
  if (!g || flags != 0) return kInvalidHandle;
  ExecutableGraph* e = add(m.executables, executable);
  for (const auto& n : g->nodes) {
    e->original.push_back(n.get());
    e->work.push_back(n->work);
    e->after.emplace_back();
    for (const Node* a : n->after)
      e->after.back().push_back(
          static_cast<size_t>(std::find(e->original.begin(), e->original.end(), a) - e->original.begin()));
  }
  return 0;
}
/// Nodes that no path of the graph orders may not touch the same memory.
int launch_graph(void* executable, void* stream) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  ExecutableGraph* e = find(m.executables, executable, "instantiated graph");
  Stream* s = find(m.streams, stream, "stream");
  if (!e || !s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  int error = 0;
  for (size_t i = 0; i < e->work.size() && !error; i++) {
    if (e->work[i].function && e->work[i].function->module->unloaded) violation("a graph launches an unloaded module");
    if (i > 0 && !is_behind(*e, i, i - 1)) violation("a graph's node is in no order with the one before it");
    error = touch_all(*s, moment, e->work[i]);
  }
  std::erase_if(e->launches, [&](const Moment& l) { return l.before(m.host); });
  e->launches.push_back(moment);
  std::vector<std::shared_ptr<const Interpreter>> interpreters;
  for (const Work& w : e->work) interpreters.push_back(interpreter_of(w));
  push(*s, [error, work = e->work, interpreters = std::move(interpreters)] {
    int result = error;
    for (size_t i = 0; i < work.size() && !result; i++) result = run(work[i], interpreters[i]);
    return result;
  });
  return 0;
}
int destroy_graph_executable(void* executable) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  ExecutableGraph* e = find(machine().executables, executable, "instantiated graph");
  if (!e || e->destroyed) return kInvalidHandle;
  if (!kFace.keeps_running_graphs && !all_before(e->launches, machine().host))
    violation("a graph is destroyed while it may run");
  e->destroyed = true;
  return 0;
}

// ---- control ----

namespace {
Living count_living() {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  const auto count = [](const auto& all) {
    return static_cast<int>(std::count_if(all.begin(), all.end(), [](const auto& x) { return !x.second->destroyed; }));
  };
  Living out;
  for (const DeviceState& d : m.devices) out.contexts += d.contexts;
  out.streams = count(m.streams);
  out.events = count(m.events);
  out.graphs = count(m.graphs);
  out.executables = count(m.executables);
  for (const auto& [key, x] : m.modules) out.modules += !x->unloaded;
  for (const auto& [begin, b] : m.blocks)
    if (!b.freed) (b.device < 0 ? out.pinned : out.blocks)++;
  return out;
}
const char* take_violations() {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  m.taken = std::exchange(m.violations, {});
  return m.taken.c_str();
}
size_t count_calls(const char* symbol) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  const std::string_view name = symbol;
  if (name.empty()) return m.calls.size();
  return static_cast<size_t>(std::count(m.calls.begin(), m.calls.end(), name));
}
}  // namespace

extern "C" {
extern __attribute__((visibility("default"))) const Control fake_gpu_control;
}
const Control fake_gpu_control = {
    .fail_call =
        [](const char* symbol, int nth, int error) {
          std::lock_guard lock(machine().mutex);
          machine().failing = {{symbol, nth, error}};
        },
    .fail_command =
        [](int device, int nth, int error) {
          std::lock_guard lock(machine().mutex);
          device_at(device).fail_in = nth;
          device_at(device).fail_with = error;
        },
    .count_calls = count_calls,
    .call =
        [](size_t number) {
          std::lock_guard lock(machine().mutex);
          return machine().calls.at(number);
        },
    .take_violations = take_violations,
    .living = count_living,
    .set_delay =
        [](int microseconds) {
          std::lock_guard lock(machine().mutex);
          machine().delay = microseconds;
        },
    .set_peers =
        [](bool reach) {
          std::lock_guard lock(machine().mutex);
          machine().peers = reach;
        },
    .last_launch =
        [](unsigned grid[3], unsigned block[3], unsigned* shared_bytes) {
          std::lock_guard lock(machine().mutex);
          std::copy(machine().last_grid, machine().last_grid + 3, grid);
          std::copy(machine().last_block, machine().last_block + 3, block);
          *shared_bytes = machine().last_shared;
        },
};

}  // namespace tg::fake
