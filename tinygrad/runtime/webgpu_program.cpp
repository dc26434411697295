/// \file WebGPU: sources to kernels, and launching them.
#include <algorithm>
#include <array>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/webgpu_device.h"

namespace tg {
namespace {
using namespace webgpu;

/// Releases an object of the library when it goes out of scope.
class Holder {
 public:
  Holder(Handle object, void (*release)(Handle)) : object_(object), release_(release) {}
  ~Holder() {
    if (object_) release_(object_);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  Handle get() const { return object_; }

 private:
  Handle object_;
  void (*release_)(Handle);
};

Handle create_module(const WebGpuContext& context, std::string_view source) {
  ShaderSource wgsl;
  wgsl.code = text(source);
  LabelDescriptor descriptor;
  descriptor.next = &wgsl.chain;
  return context.f.DeviceCreateShaderModule(context.device, &descriptor);
}

/// The arguments, at an offset that changes with every launch, and the buffers that the kernel touches.
Handle create_layout(const WebGpuContext& context, const WgslHeader& header) {
  std::vector<LayoutEntry> entries(1);
  entries[0].buffer.type = kUniformBinding;
  entries[0].buffer.dynamic_offset = 1;
  entries[0].buffer.least_bytes = header.argument_words() * 4;
  for (size_t slot = 0; slot < header.buffer_bytes.size(); slot++) {
    if (header.buffer_bytes[slot] == 0) continue;
    LayoutEntry e;
    e.binding = static_cast<uint32_t>(slot) + WgslHeader::kFirstBuffer;
    e.buffer.type = kStorageBinding;
    entries.push_back(e);
  }
  LayoutDescriptor descriptor;
  descriptor.count = entries.size();
  descriptor.entries = entries.data();
  return context.f.DeviceCreateBindGroupLayout(context.device, &descriptor);
}

class WebGpuExecutable final : public Executable {
 public:
  WebGpuExecutable(const WebGpuContext& context, WebGpuQueue& queue, WebGpuKernel kernel)
      : context_(context), queue_(queue), kernel_(std::move(kernel)) {}
  ~WebGpuExecutable() override {
    context_.f.ComputePipelineRelease(kernel_.pipeline);
    context_.f.BindGroupLayoutRelease(kernel_.layout);
  }
  void launch(const LaunchArgs& args) override;

 private:
  void check_size(const LaunchArgs& args) const;
  const WebGpuContext& context_;
  WebGpuQueue& queue_;
  const WebGpuKernel kernel_;
};

void WebGpuExecutable::check_size(const LaunchArgs& args) const {
  const WgslHeader& h = kernel_.header;
  TG_CHECK(DeviceError, static_cast<size_t>(args.nbuffers) == h.buffer_bytes.size() && args.nvars == h.variables,
           "[launch] ", context_.name, ": kernel ", h.name, " has ", h.buffer_bytes.size(), " buffers and ",
           h.variables, " variables, got ", args.nbuffers, " and ", args.nvars);
  for (int i = 0; i < 3; i++)
    TG_CHECK(DeviceError, args.global[i] <= context_.adapter.limits.groups, "[launch] ", context_.name, ": kernel ",
             h.name, " has ", args.global[i], " groups along dimension ", i, " of the grid, at most ",
             context_.adapter.limits.groups, " are possible");
}

void WebGpuExecutable::launch(const LaunchArgs& args) {
  context_.check();
  check_size(args);
  if (args.is_empty()) return;
  const WgslHeader& h = kernel_.header;
  const Limits& limits = context_.adapter.limits;
  std::vector<uint32_t> given(1, 0);
  std::vector<WebGpuBinding> bindings;
  for (size_t i = 0; i < h.buffer_bytes.size(); i++) {
    const auto& block = *static_cast<const WebGpuBlock*>(args.buffers[i]);
    const auto offset = static_cast<uint64_t>(args.offsets ? args.offsets[i] : 0);
    const uint64_t begin = offset / limits.storage_alignment * limits.storage_alignment;
    given.push_back(static_cast<uint32_t>(offset - begin));
    if (h.buffer_bytes[i] == 0) continue;
    const uint64_t end = std::min((offset + static_cast<uint64_t>(h.buffer_bytes[i]) + 3) / 4 * 4, block.bytes);
    TG_CHECK(DeviceError, begin < end, "[launch] ", context_.name, ": kernel ", h.name, " got a buffer of ",
             block.bytes, " bytes and an offset of ", offset);
    TG_CHECK(OutOfMemoryError, end - begin <= limits.storage_binding_bytes, "[launch] ", context_.name, ": kernel ",
             h.name, " reads or writes ", end - begin, " bytes of a buffer, at most ", limits.storage_binding_bytes,
             " are possible");
    bindings.push_back({block.buffer, begin, end - begin, static_cast<uint32_t>(i) + WgslHeader::kFirstBuffer});
  }
  for (int i = 0; i < args.nvars; i++)
    for (int shift : {0, 32}) given.push_back(static_cast<uint32_t>(args.vars[i] >> shift));
  queue_.launch(kernel_, bindings, given, args.global);
}
}  // namespace

std::string WebGpuCompiler::cache_key() const {
  return str("wgsl ", context_.f.GetVersion ? context_.f.GetVersion() : 0);
}

std::vector<uint8_t> WebGpuCompiler::compile(const std::string& source) {
  context_.check();
  Handle module = nullptr;
  const std::string error = context_.errors_of([&] { module = create_module(context_, source); });
  if (module) context_.f.ShaderModuleRelease(module);
  TG_CHECK(CompileError, error.empty(), "[compile] ", context_.name, ": ", error);
  return {source.begin(), source.end()};
}

std::string WebGpuCompiler::assembly(const std::string& source) {
  return str(source.size(), " bytes of WGSL: the machine code is the secret of ", context_.adapter.driver);
}

WebGpuKernel make_webgpu_kernel(const WebGpuContext& context, std::string_view source, const std::string& symbol) {
  context.check();
  WebGpuKernel kernel;
  kernel.header = WgslHeader::parse(source);
  TG_CHECK(FormatError, kernel.header.name == symbol, "[load] ", context.name, ": got the kernel ", kernel.header.name,
           ", expected ", symbol);
  const Functions& f = context.f;
  const std::string error = context.errors_of([&] {
    kernel.layout = create_layout(context, kernel.header);
    PipelineLayoutDescriptor layout;
    layout.count = 1;
    layout.layouts = &kernel.layout;
    const Holder pipeline_layout(f.DeviceCreatePipelineLayout(context.device, &layout), f.PipelineLayoutRelease);
    const Holder module(create_module(context, source), f.ShaderModuleRelease);
    PipelineDescriptor descriptor;
    descriptor.layout = pipeline_layout.get();
    descriptor.compute.module = module.get();
    descriptor.compute.entry = text(WgslHeader::kEntryPoint);
    kernel.pipeline = f.DeviceCreateComputePipeline(context.device, &descriptor);
  });
  if (error.empty() && kernel.pipeline) return kernel;
  if (kernel.layout) f.BindGroupLayoutRelease(kernel.layout);
  if (kernel.pipeline) f.ComputePipelineRelease(kernel.pipeline);
  throw FormatError(str("[load] ", context.name, ": kernel ", symbol, ": ", error));
}

std::shared_ptr<Executable> load_webgpu(const WebGpuContext& context, WebGpuQueue& queue,
                                        std::span<const uint8_t> binary, const std::string& symbol) {
  TG_CHECK(FormatError, !binary.empty(), "[load] ", context.name, ": got no bytes for ", symbol);
  const std::string_view source(reinterpret_cast<const char*>(binary.data()), binary.size());
  return std::make_shared<WebGpuExecutable>(context, queue, make_webgpu_kernel(context, source, symbol));
}

}  // namespace tg
