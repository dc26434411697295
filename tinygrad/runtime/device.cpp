/// \file The registry of device kinds, the names of devices, and the devices that are open.
#include "tinygrad/runtime/device.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/registry.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/held_device.h"
#include "tinygrad/runtime/transfers.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/target/program.h"
#include "tinygrad/uop/multi.h"

namespace tg {
namespace {

/// What a name stands for: a kind, or another name of one.
struct NamedKind {
  std::shared_ptr<const DeviceKind> kind;
  bool alias = false;
};
using Kinds = Registry<NamedKind>;
Kinds& registered_kinds() {
  static auto* instance = new Kinds;
  return *instance;
}
/// Returns the registry with the library's devices in it.
const Kinds& kinds() {
  static std::once_flag once;
  std::call_once(once, register_builtin_devices);
  return registered_kinds();
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

const DeviceKind* find_kind(std::string_view name) {
  const Kinds::Entry* entry = kinds().find(name);
  return entry ? entry->value.kind.get() : nullptr;
}

std::string known_devices() {
  std::string names;
  for (const std::string& name : Device::kinds()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

/// Returns what was found of a kind, or what is missing.
DeviceInfo describe(const Kinds::Entry& entry) {
  DeviceInfo info{entry.name, false, "", ""};
  const DeviceKind& kind = *entry.value.kind;
  try {
    kinds().find(entry.name);  // throws where the name was registered twice
    info.note = kind.describe ? kind.describe() : std::string();
    info.available = static_cast<bool>(kind.open);
  } catch (const ValueError&) {
    throw;  // a variable of the environment that is not understood says nothing about the device
  } catch (const Error& e) {
    info.note = e.what();
    info.install = kind.install;
  }
  return info;
}

/// Throws DeviceError, with how to install what is missing, where there is no device of a kind at all.
void check_available(const std::string& name, const DeviceKind& kind) {
  const DeviceInfo info = describe(*kinds().find(kind.name));
  TG_CHECK(DeviceError, info.available, "[device] ", name, " is not available: ", info.note,
           info.install.empty() ? "" : "; to install: ", info.install);
}

/// Returns the first GPU that opens.
std::string first_gpu() {
  std::string reasons;
  for (const Kinds::Entry* e : kinds().all()) {
    const DeviceKind& kind = *e->value.kind;
    if (e->value.alias || !kind.gpu) continue;
    const DeviceInfo info = describe(*e);
    const std::string why_not = !info.available ? info.note : kind.no_gpu ? kind.no_gpu() : "";
    if (why_not.empty()) return e->name;
    reasons += (reasons.empty() ? "" : "; ") + e->name + ": " + why_not;
  }
  throw DeviceError("[device] found no GPU (" + reasons + ")");
}

/// A device, once it is open. It is opened under a lock of its own: that may take seconds, or wait for a slow disk.
struct OpenedDevice {
  std::mutex opening;
  std::shared_ptr<Device> device;  // written under the lock of all and under `opening`
};

/// The devices opened so far. Those with paths may be many: they are held by who uses them.
struct OpenedDevices {
  std::shared_mutex mutex;
  std::map<std::string, std::shared_ptr<OpenedDevice>, std::less<>> devices;
  std::map<std::string, std::weak_ptr<Device>, std::less<>> of_paths;
  std::vector<Device*> order;
};
OpenedDevices& opened_devices() {
  static auto* instance = new OpenedDevices;  // buffers held by static objects outlive static objects of ours
  return *instance;
}

std::shared_ptr<Device> find_opened(std::string_view name) {
  OpenedDevices& r = opened_devices();
  std::shared_lock lock(r.mutex);
  if (const auto it = r.devices.find(name); it != r.devices.end()) return it->second->device;
  const auto it = r.of_paths.find(name);
  return it == r.of_paths.end() ? nullptr : it->second.lock();
}

std::shared_ptr<Device> open_device(const std::string& name, const DeviceKind& kind) {
  try {
    TG_CHECK(DeviceError, kind.open, "this build has none");
    return kind.open(name);
  } catch (const DeviceError&) {
    check_available(name, kind);
    throw;
  }
}

/// Returns the device of a path, which opens nothing yet: one object for all that use it at a time.
std::shared_ptr<Device> device_of_path(const std::string& name, const DeviceKind& kind) {
  std::shared_ptr<Device> made = open_device(name, kind);
  OpenedDevices& r = opened_devices();
  const std::unique_lock lock(r.mutex);
  std::weak_ptr<Device>& known = r.of_paths[name];
  if (std::shared_ptr<Device> other = known.lock()) return other;
  known = made;
  constexpr size_t kPerLook = 1024;
  if (r.of_paths.size() % kPerLook == 0) std::erase_if(r.of_paths, [](const auto& d) { return d.second.expired(); });
  return made;
}

std::shared_ptr<Device> device_of_kind(const std::string& name, const DeviceKind& kind) {
  OpenedDevices& r = opened_devices();
  std::shared_ptr<OpenedDevice> slot;
  {
    const std::unique_lock lock(r.mutex);
    std::shared_ptr<OpenedDevice>& known = r.devices[name];
    if (!known) known = std::make_shared<OpenedDevice>();
    slot = known;
  }
  const std::lock_guard opening(slot->opening);
  if (slot->device) return slot->device;
  std::shared_ptr<Device> made = open_device(name, kind);
  const std::unique_lock lock(r.mutex);
  slot->device = made;
  r.order.push_back(made.get());
  return made;
}

}  // namespace

Device::Device(std::string name, std::unique_ptr<LruAllocator> allocator)
    : allocator_(std::move(allocator)), name_(std::move(name)), transfers_(std::make_unique<Transfers>(*this)) {
  kind_ = name_.substr(0, name_.find(':'));
}
Device::~Device() = default;

std::shared_ptr<Executable> Device::load(const std::shared_ptr<const Program>& program) {
  return load(program->binary, program->name);
}

void Device::copy_from(MemoryPlace, Device& source, MemoryPlace, size_t) {
  throw DeviceError(str("[copy] ", name_, " does not reach the memory of ", source.name()));
}

void Device::wait() {
  queue().wait();
  if (&transfer_queue() != &queue()) transfer_queue().wait();
}

void register_device(DeviceKind kind, const char* file, int line) {
  kind.name = upper(kind.name);
  const auto shared = std::make_shared<const DeviceKind>(std::move(kind));
  registered_kinds().add(shared->name, shared->order, {shared, false}, file, line);
  for (const std::string& alias : shared->aliases)
    registered_kinds().add(upper(alias), shared->order, {shared, true}, file, line);
}

namespace {
/// Returns the name of the mesh that "CPU@0-3/data:4" or a list "CPU@0,CPU@1" means.
std::string canonical_world(std::string_view name) {
  WorldDevices world;
  if (name.find('-') != std::string_view::npos && name.find(',') == std::string_view::npos) {
    world = parse_world(name);
    world.device = Device::canonical(world.device);
  } else {
    std::string rest(name);
    int64_t count = 0;
    for (size_t at = 0, end = 0; at <= rest.size(); at = end + 1, count++) {
      end = std::min(rest.find(',', at), rest.size());
      const std::string one = rest.substr(at, end - at);
      const size_t mark = std::min(one.find('@'), one.size());
      const std::string device = Device::canonical(one.substr(0, mark)),
                        number = one.substr(std::min(mark + 1, one.size()));
      TG_CHECK(DeviceError,
               !number.empty() && number.size() < 8 && number.find_first_not_of("0123456789") == std::string::npos,
               "[device] got ", one, " in a list of devices of several processes, expected DEVICE@RANK");
      if (!count) world = {device, std::stoll(number), {}};
      TG_CHECK(DeviceError, device == world.device && std::stoll(number) == world.first + count, "[device] got ", name,
               ", expected one device of ranks that follow each other");
    }
    world.axes = {{"", count}};
  }
  const std::string text = world.name();
  if (parse_world(text).count() == 1) {  // of one process
    const int64_t here = distributed::rank();
    TG_CHECK(DeviceError, world.first == here, "[device] got ", name, " in rank ", here,
             ", expected a device of this process, or of several");
    return world.device;
  }
  TG_CHECK(DeviceError, world.first + world.count() <= distributed::size(), "[device] got ", name, " in a world of ",
           distributed::size(), distributed::is_initialized() ? "" : ": init() was not called");
  return text;
}
}  // namespace

std::string Device::canonical(std::string_view name) {
  if (name.empty()) return default_name();
  if (is_world(name)) return canonical_world(name);
  if (is_device_list(name)) {
    std::vector<std::string> names = split_devices(name);
    for (std::string& n : names) {
      TG_CHECK(DeviceError, !n.empty(), "[device] got ", name, ", a list with an empty name");
      n = canonical(n);
      TG_CHECK(DeviceError, !n.starts_with("DISK"), "[device] got ", name,
               ", expected devices that compute in a list of several");
    }
    return device_list(names);
  }
  const size_t colon = std::min(name.find(':'), name.size());
  std::string kind = upper(name.substr(0, colon));
  if (kind == "GPU") kind = first_gpu();
  const DeviceKind* k = find_kind(kind);
  TG_CHECK(DeviceError, k, "[device] got ", name, ", expected one of ", known_devices());
  kind = k->name;
  if (colon == name.size()) return kind;
  const std::string_view rest = name.substr(colon + 1);
  if (k->takes_path) return kind + ":" + std::string(rest);
  const bool number =
      !rest.empty() && rest.size() <= 4 && rest.find_first_not_of("0123456789") == std::string_view::npos;
  TG_CHECK(DeviceError, number, "[device] got ", name, ", expected a number after ", kind, ":");
  const int index = std::stoi(std::string(rest));
  return index == 0 ? kind : kind + ":" + std::to_string(index);
}

namespace {

/// Refuses a renderer or an architecture that DEV names for a kind of device that has one of each only.
void check_setting(const DeviceKind& kind) {
  if (kind.has_settings || kind.takes_path) return;
  const DeviceSpec spec = dev_setting(kind.name);
  if (spec.device.empty()) return;  // those of the processor
  TG_CHECK(DeviceError, spec.renderer.empty() && spec.arch.empty(), "[device] got DEV=", env::DEV.get(), ", expected ",
           kind.name, " alone: it has neither renderers nor architectures to choose from");
}

}  // namespace

std::shared_ptr<Device> hold_device(std::string_view name) {
  if (std::shared_ptr<Device> d = find_opened(name)) return d;  // names in tensors are canonical already
  const std::string full = Device::canonical(name);
  TG_CHECK(DeviceError, !is_device_list(full), "[device] got ", full, ", expected one device");
  if (std::shared_ptr<Device> d = find_opened(full)) return d;
  const DeviceKind& kind = *find_kind(std::string_view(full).substr(0, full.find(':')));
  check_setting(kind);
  return kind.takes_path ? device_of_path(full, kind) : device_of_kind(full, kind);
}

Device& Device::get(std::string_view name) {
  thread_local std::shared_ptr<Device> latest;  // of a path: nobody else may hold it
  std::shared_ptr<Device> d = hold_device(name);
  Device& device = *d;
  if (!device.computes()) latest = std::move(d);
  return device;
}

std::string Device::default_name() {
  const std::string& dev = env::DEV.get();
  if (dev.empty()) return "CPU";
  const std::vector<DeviceSpec> specs = parse_dev(dev);
  return specs.empty() || specs[0].device.empty() ? std::string("CPU") : canonical(specs[0].device);
}

std::vector<std::string> Device::kinds() {
  std::vector<std::string> names;
  for (const Kinds::Entry* e : tg::kinds().all())
    if (!e->value.alias) names.push_back(e->name);
  return names;
}

std::vector<DeviceInfo> Device::list() {
  std::vector<DeviceInfo> result;
  for (const Kinds::Entry* e : tg::kinds().all())
    if (!e->value.alias) result.push_back(describe(*e));
  return result;
}

std::vector<Device*> Device::opened() {
  OpenedDevices& r = opened_devices();
  std::shared_lock lock(r.mutex);
  return r.order;
}

void Device::synchronize(std::string_view name) {
  if (!name.empty()) return get(name).wait();
  for (Device* d : opened()) d->wait();
}

DeviceSpec dev_setting(const std::string& kind) {
  for (const DeviceSpec& spec : parse_dev(env::DEV.get())) {
    const std::string named = spec.device.substr(0, spec.device.find(':'));
    if (named.empty() || named == kind || (named == "GPU" && kind == first_gpu())) return spec;
  }
  return {kind, "", ""};
}

}  // namespace tg
