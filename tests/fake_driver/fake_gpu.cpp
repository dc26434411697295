/// \file The fake GPUs as a whole: their devices, what was called, what was wrong, and how tests look into them.
#include "fake_driver/fake_gpu.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "fake_driver/fake_machine.h"

namespace tg::fake {

thread_local int current_device = -1;

int delay_of_environment() {
  const char* text = std::getenv("FAKE_GPU_DELAY_US");
  return text ? std::atoi(text) : 0;
}

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

int check_current() {
  if (!machine().initialized) return kNotInitialized;
  if (!is_device(current_device) || device_at(current_device).contexts == 0) {
    violation("a call without a current device");
    return kInvalidContext;
  }
  return device_at(current_device).failed;
}

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
/// The place of a device, which differs where CUDA_VISIBLE_DEVICES begins with another number, as on a machine of many.
int bus_id(char* text, int size, int device) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device + (visible ? std::atoi(visible) : 0));
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
/// A command of another library, in a stream of the current device.
int enqueue_foreign(void* stream, const Access* accesses, size_t count, int (*run)(void*), void* argument) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  int error = 0;
  for (size_t i = 0; i < count; i++)
    if (const int wrong = touch(*s, moment, accesses[i].address, accesses[i].bytes, accesses[i].writes, "a library"))
      error = wrong;
  push(*s, [=] {
    const int failed = run(argument);
    return error ? error : failed;
  });
  return 0;
}
uint64_t count_commands(void* stream) {
  std::lock_guard lock(machine().mutex);
  const Stream* s = find(machine().streams, stream, "stream");
  return s ? s->enqueued : 0;
}
const char* current_place() {
  static thread_local char text[32];
  bus_id(text, sizeof text, current_device);
  return text;
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
    .enqueue = enqueue_foreign,
    .commands = count_commands,
    .device = [] { return current_device; },
    .place = current_place,
};

}  // namespace tg::fake
