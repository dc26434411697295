/// \file The device registry: one line per device.
#include "tinygrad/runtime/device.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/devices.h"
#include "tinygrad/target/program.h"
#include "tinygrad/uop/multi.h"

namespace tg {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Device> (*open)(const std::string& name);  // null: not in this build
  std::string (*describe)();
  bool takes_path = false;  // after the colon, instead of an index
};

std::string absent_cuda() { throw DeviceError("this build has no CUDA runtime"); }
std::string absent_amd() { throw DeviceError("this build has no AMD runtime"); }
std::string absent_metal() { throw DeviceError("this build has no Metal runtime"); }
std::string absent_cl() { throw DeviceError("this build has no OpenCL runtime"); }

constexpr Kind kKinds[] = {
    {"CPU", open_cpu, describe_cpu},
    {"CUDA", nullptr, absent_cuda},
    {"AMD", nullptr, absent_amd},
    {"METAL", nullptr, absent_metal},
    {"CL", nullptr, absent_cl},
    {"NULL", open_null, describe_null},
    {"INTERP", open_interp, describe_interp},
    {"DISK", open_disk, describe_disk, true},
};
// Names of older versions and of other runtimes, mapped to ours.
struct Alias {
  const char *name, *kind;
};
constexpr Alias kAliases[] = {{"CLANG", "CPU"}, {"LLVM", "CPU"}, {"PYTHON", "INTERP"},
                              {"NV", "CUDA"},   {"HIP", "AMD"},  {"OPENCL", "CL"}};
constexpr const char* kGpuKinds[] = {"CUDA", "AMD", "METAL", "CL"};  // what "GPU" may refer to, in order

const Kind* find_kind(std::string_view name) {
  for (const Kind& k : kKinds)
    if (name == k.name) return &k;
  return nullptr;
}

std::string known_devices() {
  std::string names;
  for (const Kind& k : kKinds) names += (names.empty() ? "" : ", ") + std::string(k.name);
  return names;
}

/// Returns what is missing, empty when the kind can be opened.
std::string missing(const Kind& kind) {
  try {
    kind.describe();
    return {};
  } catch (const DeviceError& e) { return e.what(); }
}

/// Returns the first GPU that opens.
std::string first_gpu() {
  std::string reasons;
  for (const char* name : kGpuKinds) {
    const std::string why = missing(*find_kind(name));
    if (why.empty()) return name;
    reasons += (reasons.empty() ? "" : "; ") + std::string(name) + ": " + why;
  }
  throw DeviceError("[device] found no GPU (" + reasons + ")");
}

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, std::unique_ptr<Device>, std::less<>> devices;
  std::vector<Device*> order;
};
Registry& registry() {
  static auto* instance = new Registry;  // buffers held by static objects outlive static objects of ours
  return *instance;
}

Device* find_opened(std::string_view name) {
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  auto it = r.devices.find(name);
  return it == r.devices.end() ? nullptr : it->second.get();
}

}  // namespace

Device::Device(std::string name, std::unique_ptr<LruAllocator> allocator)
    : allocator_(std::move(allocator)), name_(std::move(name)) {
  kind_ = name_.substr(0, name_.find(':'));
}
Device::~Device() = default;

std::shared_ptr<Executable> Device::load(const std::shared_ptr<const Program>& program) {
  return load(program->binary, program->name);
}

std::string Device::canonical(std::string_view name) {
  if (name.empty()) return default_name();
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
  std::string kind(name.substr(0, colon));
  for (char& c : kind) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  if (kind == "GPU") kind = first_gpu();
  for (const Alias& a : kAliases)
    if (kind == a.name) kind = a.kind;
  const Kind* k = find_kind(kind);
  TG_CHECK(DeviceError, k, "[device] got ", name, ", expected one of ", known_devices());
  if (colon == name.size()) return kind;
  const std::string_view rest = name.substr(colon + 1);
  if (k->takes_path) return kind + ":" + std::string(rest);
  const bool number =
      !rest.empty() && rest.size() <= 4 && rest.find_first_not_of("0123456789") == std::string_view::npos;
  TG_CHECK(DeviceError, number, "[device] got ", name, ", expected a number after ", kind, ":");
  const int index = std::stoi(std::string(rest));
  return index == 0 ? kind : kind + ":" + std::to_string(index);
}

Device& Device::get(std::string_view name) {
  if (Device* d = find_opened(name)) return *d;  // names in tensors are canonical already
  const std::string full = canonical(name);
  TG_CHECK(DeviceError, !is_device_list(full), "[device] got ", full, ", expected one device");
  if (Device* d = find_opened(full)) return *d;
  const Kind& kind = *find_kind(std::string_view(full).substr(0, full.find(':')));
  if (!kind.open) throw DeviceError("[device] " + full + " is not available: " + missing(kind));
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  auto& slot = r.devices[full];
  if (!slot) {
    try {
      slot = kind.open(full);
    } catch (...) {
      r.devices.erase(full);
      throw;
    }
    r.order.push_back(slot.get());
  }
  return *slot;
}

std::string Device::default_name() {
  const std::string& dev = env::DEV.get();
  if (dev.empty()) return "CPU";
  const std::vector<DeviceSpec> specs = parse_dev(dev);
  return specs.empty() || specs[0].device.empty() ? std::string("CPU") : canonical(specs[0].device);
}

std::vector<DeviceInfo> Device::list() {
  std::vector<DeviceInfo> result;
  for (const Kind& k : kKinds) {
    try {
      result.push_back({k.name, true, k.describe()});
    } catch (const Error& e) { result.push_back({k.name, false, e.what()}); }
  }
  return result;
}

std::vector<Device*> Device::opened() {
  Registry& r = registry();
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
