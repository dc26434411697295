/// \file The CL device: any OpenCL driver that the loader finds.
#include "tinygrad/runtime/opencl_device.h"

#include <algorithm>
#include <map>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {

class OpenClAllocator final : public Allocator {
 public:
  explicit OpenClAllocator(const OpenClContext& context) : context_(context) {}
  void* allocate(size_t bytes) override {
    const OpenClDevice& d = context_.device;
    if (static_cast<int64_t>(bytes) > d.most_bytes)
      throw OutOfMemoryError(
          str("[allocate] ", context_.name, ": got ", bytes, " bytes, an allocation has at most ", d.most_bytes));
    cl_int error = CL_SUCCESS;
    cl_mem block = opencl().CreateBuffer(context_.context, CL_MEM_READ_WRITE, bytes, nullptr, &error);
    if (error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES || error == CL_OUT_OF_HOST_MEMORY)
      return nullptr;
    context_.check(error, "clCreateBuffer");
    return block;
  }
  void free(void* block, size_t) noexcept override { opencl().ReleaseMemObject(static_cast<cl_mem>(block)); }

 private:
  const OpenClContext& context_;
};

class OpenClBackend final : public Device {
 public:
  OpenClBackend(const std::string& name, std::unique_ptr<OpenClContext> context)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<OpenClAllocator>(*context), name, int64_t{1} << 30,
                                                    context->device.global_bytes)),
        context_(std::move(context)),
        queue_(*context_),
        transfers_(*context_),
        compiler_(*context_) {
    target();  // sets the traits of the kind
  }
  bool handles_are_addresses() const override { return false; }
  const Target& target() override;
  Compiler& compiler(const Target&) override { return compiler_; }
  Compiler& source_compiler(const Target&) override {
    throw DeviceError("[custom_kernel] got a kernel in C for CL: write it in UOps");
  }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    return load_opencl(*context_, queue_, compiler_, binary, symbol);
  }
  Queue& queue() override { return queue_; }
  Queue& transfer_queue() override { return transfers_; }

 private:
  std::unique_ptr<OpenClContext> context_;
  OpenClQueue queue_, transfers_;
  OpenClCompiler compiler_;
  std::mutex mutex_;
  std::string last_dev_;  // the setting `last_` belongs to
  const Target* last_ = nullptr;
  std::map<std::string, std::unique_ptr<Target>> targets_;  // by key
};

const Target& OpenClBackend::target() {
  const std::string& dev = env::DEV.get();
  std::lock_guard lock(mutex_);
  if (last_ && last_dev_ == dev) return *last_;
  const DeviceSpec spec = dev_setting("CL");
  Target t = opencl_target(context_->device, spec.renderer, spec.arch);
  auto& kept = targets_[t.key()];
  if (!kept) kept = std::make_unique<Target>(std::move(t));
  last_dev_ = dev;
  const bool groups = kept->has("workgroups");
  set_device_traits("CL", {.row_kernels = !groups, .row_groups = groups, .attention_kernels = !groups});
  return *(last_ = kept.get());
}

std::unique_ptr<Device> open_opencl_device(const std::string& name) {
  std::vector<OpenClDevice> devices = opencl_devices();
  const size_t colon = name.find(':');
  const size_t index = colon == std::string::npos ? 0 : std::stoul(name.substr(colon + 1));
  TG_CHECK(DeviceError, index < devices.size(), "[device] got ", name, ", found ", devices.size(), " OpenCL device",
           devices.size() == 1 ? "" : "s");
  return std::make_unique<OpenClBackend>(name, std::make_unique<OpenClContext>(devices[index], name));
}

std::string describe_opencl() {
  std::string text;
  for (const OpenClDevice& d : opencl_devices())
    text += str(text.empty() ? "" : "; ", d.name, " (", d.platform, ", ", d.driver, ")");
  return text;
}
/// Only what is not named is chosen carefully: CL names any device.
std::string why_no_gpu() {
  const OpenClDevice first = opencl_devices().front();  // GPUs come first
  return first.type & CL_DEVICE_TYPE_CPU ? first.name + " is a processor, CL names it" : "";
}
}  // namespace

OpenClContext::OpenClContext(OpenClDevice d, std::string device_name)
    : device(std::move(d)), name(std::move(device_name)) {
  cl_int error = CL_SUCCESS;
  context = opencl().CreateContext(nullptr, 1, &device.id, nullptr, nullptr, &error);
  check(error, "clCreateContext");
}

Target opencl_target(const OpenClDevice& device, const std::string& renderer, const std::string& arch) {
  TG_CHECK(DeviceError, renderer.empty() || renderer == "OPENCL", "[DEV] CL has no renderer '", renderer,
           "', expected OPENCL");
  TG_CHECK(DeviceError, arch.empty() || arch == "workgroups" || arch == "lanes", "[DEV] got CL:OPENCL:", arch,
           ", expected workgroups or lanes");
  const bool processor = device.type & CL_DEVICE_TYPE_CPU;
  const bool groups = arch.empty() ? !processor : arch == "workgroups";
  Target t;
  t.device = "CL";
  t.renderer = "OPENCL";
  t.arch = "opencl";
  t.cpu = device.name;
  if (device.fma) t.features.emplace_back("fma");
  if (device.fp16) t.features.emplace_back("fp16");
  if (device.fp64) t.features.emplace_back("fp64");
  if (groups) t.features.emplace_back("workgroups");
  t.vector_bytes = static_cast<int>(std::min<int64_t>(device.lanes * 4, 64));
  t.vector_registers = t.vector_bytes == 64 ? 32 : 16;
  t.cores = static_cast<int>(device.units);
  t.shared_bytes = device.local_bytes;
  if (processor) {
    const Target& host = host_processor();
    if (host.arch == "x86_64" && !groups) t.features.push_back(host.arch);  // stores may go past its caches
    t.l1_bytes = host.l1_bytes;
    t.l2_bytes = std::min(host.l2_bytes, device.local_bytes);
    t.l3_bytes = host.l3_bytes;
  }
  t.group_threads = device.group_threads;
  for (int i = 0; i < 3; i++) {
    t.group_limit[i] = device.group_limit[i];
    t.grid_limit[i] = (int64_t{1} << 31) - 1;
  }
  return t;
}

DeviceKind opencl_kind() {
  return {.name = "CL",
          .open = open_opencl_device,
          .describe = describe_opencl,
          .install = "apt install ocl-icd-libopencl1 and a driver: pocl-opencl-icd runs on any processor",
          .aliases = {"OPENCL"},
          .order = 130,
          .gpu = true,
          .no_gpu = why_no_gpu};
}

}  // namespace tg
