/// \file The CL device: any OpenCL driver that the loader finds.
#include "tinygrad/runtime/opencl_device.h"

#include <map>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/opencl_offline.h"
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
    cl_mem block = context_.cl.CreateBuffer(context_.context, CL_MEM_READ_WRITE, bytes, nullptr, &error);
    if (error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES || error == CL_OUT_OF_HOST_MEMORY)
      return nullptr;
    context_.check(error, "clCreateBuffer");
    return block;
  }
  void free(void* block, size_t) noexcept override {
    context_.images.drop(context_.cl, block);
    context_.cl.ReleaseMemObject(static_cast<cl_mem>(block));
  }

 private:
  const OpenClContext& context_;
};

class OpenClBackend final : public Device {
 public:
  OpenClBackend(const OpenClKind& kind, const std::string& name, std::unique_ptr<OpenClContext> context)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<OpenClAllocator>(*context), name, int64_t{1} << 30,
                                                    context->device.global_bytes)),
        kind_(kind),
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
    throw DeviceError(str("[custom_kernel] got a kernel in C for ", kind(), ": write it in UOps"));
  }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    return load_opencl(*context_, queue_, compiler_, binary, symbol);
  }
  Queue& queue() override { return queue_; }
  Queue& transfer_queue() override { return transfers_; }

 private:
  const OpenClKind& kind_;
  std::unique_ptr<OpenClContext> context_;
  OpenClQueue queue_, transfers_;
  OpenClCompiler compiler_;
  std::mutex mutex_;
  std::string last_dev_;  // the settings `last_` belongs to
  bool last_images_ = false;
  const Target* last_ = nullptr;
  std::map<std::string, std::unique_ptr<Target>> targets_;  // by key
};

const Target& OpenClBackend::target() {
  const std::string& dev = env::DEV.get();
  const int64_t setting = env::IMAGE.get();
  const bool images = setting < 0 ? kind_.images : setting > 0;
  std::lock_guard lock(mutex_);
  if (last_ && last_dev_ == dev && last_images_ == images) return *last_;
  const DeviceSpec spec = dev_setting(kind_.name);
  Target t = opencl_target(context_->device, spec.renderer, spec.arch, images, kind_.name);
  auto& kept = targets_[t.key()];
  if (!kept) kept = std::make_unique<Target>(std::move(t));
  last_dev_ = dev;
  last_images_ = images;
  const bool groups = kept->has("workgroups");
  set_device_traits(kind_.name, {.row_kernels = !groups,
                                 .row_groups = groups,
                                 .attention_kernels = true,
                                 .image_pitch = kept->images.width ? kept->images.pitch : 0});
  return *(last_ = kept.get());
}

const OpenClKind kAnyOpenCl{.name = "CL", .platform = "", .library = opencl, .images = false};
const OpenClKind kQualcomm{.name = "QCOM", .platform = "QUALCOMM", .library = qualcomm_opencl, .images = true};

/// Returns the devices of a kind. Throws DeviceError when there are none.
std::vector<OpenClDevice> devices_of(const OpenClKind& kind) {
  std::vector<OpenClDevice> devices = opencl_devices(kind.library());
  std::erase_if(devices, [&](const OpenClDevice& d) { return !d.platform.starts_with(kind.platform); });
  TG_CHECK(DeviceError, !devices.empty(), "[device] the OpenCL library has no device of ", kind.platform);
  return devices;
}

std::unique_ptr<Device> open_opencl_device(const OpenClKind& kind, const std::string& name) {
  std::vector<OpenClDevice> devices = devices_of(kind);
  const size_t colon = name.find(':');
  const size_t index = colon == std::string::npos ? 0 : std::stoul(name.substr(colon + 1));
  TG_CHECK(DeviceError, index < devices.size(), "[device] got ", name, ", found ", devices.size(), " OpenCL device",
           devices.size() == 1 ? "" : "s");
  return std::make_unique<OpenClBackend>(kind, name, std::make_unique<OpenClContext>(devices[index], name));
}

std::string describe_opencl(const OpenClKind& kind) {
  std::string text;
  for (const OpenClDevice& d : devices_of(kind))
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
    : device(std::move(d)), cl(*device.functions), name(std::move(device_name)) {
  cl_int error = CL_SUCCESS;
  context = cl.CreateContext(nullptr, 1, &device.id, nullptr, nullptr, &error);
  check(error, "clCreateContext");
}

DeviceKind opencl_kind() {
  return {.name = "CL",
          .open = [](const std::string& name) { return open_opencl_device(kAnyOpenCl, name); },
          .describe = [] { return describe_opencl(kAnyOpenCl); },
          .install = "apt install ocl-icd-libopencl1 and a driver: pocl-opencl-icd runs on any processor",
          .aliases = {"OPENCL"},
          .order = 130,
          .gpu = true,
          .no_gpu = why_no_gpu,
          .has_settings = true};
}

DeviceKind qcom_kind() {
  set_device_traits("QCOM", {.row_kernels = false, .image_pitch = kAdrenoImages.pitch});
  return {.name = "QCOM",
          .open = [](const std::string& name) { return open_opencl_device(kQualcomm, name); },
          .describe = [] { return describe_opencl(kQualcomm); },
          .install = "the OpenCL driver of the vendor's Android or Linux for Snapdragon; QCOM_LIBRARY names its file",
          .aliases = {"ADRENO"},
          .order = 125,
          .gpu = true,
          .has_settings = true};
}

}  // namespace tg
