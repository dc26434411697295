/// \file The state of the fake GPUs; private to their own sources. One lock guards all of it; commands of streams run
/// without.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fake_driver/fake_gpu.h"
#include "fake_driver/program_image.h"
#include "tinygrad/runtime/interp.h"

namespace tg::fake {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 101, kInvalidImage = 200,
              kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
              kPeerAlreadyEnabled = 704, kNotSupported = 801;

constexpr int kDevices = 16, kMaxThreads = 1024 /* of a group */;
constexpr int64_t kDeviceBytes = int64_t{1} << 30;

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

/// Of the variable FAKE_GPU_DELAY_US: see Control::set_delay().
int delay_of_environment();

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
  int delay = delay_of_environment();
  unsigned last_grid[3] = {}, last_block[3] = {}, last_shared = 0;
};
Machine& machine();

extern thread_local int current_device;  // -1: none
inline DeviceState& device_at(int device) { return machine().devices[static_cast<size_t>(device)]; }
inline bool is_device(int device) { return device >= 0 && device < kDevices; }
/// Returns an error where this thread has no device, or one that failed.
int check_current();

/// Returns the number of the next command, which is then behind everything the host has waited for.
Moment next_moment(Stream& s);
void push(Stream& s, std::function<int()> command);

/// Returns the memory at an address; null: there is none.
Block* find_block(const void* address);
/// Notes that a command touches memory; returns an error where there is none. `exact`: all of the bytes have to be
/// there.
int touch(const Stream& s, Moment moment, const void* address, size_t bytes, bool writes, const char* who,
          bool exact = true);
/// Enqueues a copy or a launch.
int enqueue(Stream& s, Work w);

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

}  // namespace tg::fake
