/// \file Metal: source to library, library to pipeline, and launching it.
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/metal_device.h"

namespace tg {
namespace {
constexpr size_t kMostLibraries = 256;                   ///< that are kept between compiling and loading
constexpr int64_t kSafeMath = 0, kPreciseFunctions = 1;  ///< MTLMathMode, MTLMathFloatingPointFunctions

/// Returns options under which products and sums stay as they are written, and divisions and square roots are exact.
ObjcRef compile_options() {
  const MetalLibrary& m = metal();
  ObjcRef options = new_object("MTLCompileOptions");
  if (m.responds_to(options.get(), m.set_math_mode.selector())) {  // macOS 15
    m.set_math_mode(options.get(), kSafeMath);
    m.set_math_functions(options.get(), kPreciseFunctions);
  } else {
    m.set_fast_math(options.get(), false);
  }
  return options;
}

class MetalExecutable final : public Executable {
 public:
  MetalExecutable(const MetalContext& context, MetalQueue& queue, ObjcRef pipeline, std::string name)
      : context_(context),
        queue_(queue),
        pipeline_(std::move(pipeline)),
        name_(std::move(name)),
        most_threads_(static_cast<int64_t>(metal().max_group_threads(pipeline_.get()))) {}
  void launch(const LaunchArgs& args) override {
    check(args);
    queue_.launch(pipeline_.get(), args);
  }
  void check(const LaunchSize& size) const {
    const int64_t threads = size.local[0] * size.local[1] * size.local[2];
    TG_CHECK(DeviceError, threads <= most_threads_, "[launch] ", context_.name, ": kernel ", name_, " has ", threads,
             " threads in a group, its pipeline runs at most ", most_threads_);
  }
  ObjcId pipeline() const { return pipeline_.get(); }

 private:
  const MetalContext& context_;
  MetalQueue& queue_;
  ObjcRef pipeline_;  // MTLComputePipelineState
  const std::string name_;
  const int64_t most_threads_;
};
}  // namespace

std::string MetalCompiler::cache_key() const { return str(context_.gpu.name, ";", context_.gpu.family, ";safe math"); }

ObjcRef MetalCompiler::make_library(const std::string& source) const {
  const AutoreleasePool pool;
  const ObjcId text = ns_string(source);  // nil for bytes that are no UTF-8
  TG_CHECK(CompileError, text, "[compile] ", context_.name, ": got a source that is no UTF-8");
  const ObjcRef options = compile_options();
  ObjcId error = nullptr;
  ObjcRef library = ObjcRef::adopt(metal().new_library(context_.gpu.handle.get(), text, options.get(), &error));
  TG_CHECK(CompileError, library, "[compile] ", context_.name, ", ", context_.gpu.name, ": ", error_text_of(error));
  return library;
}

std::vector<uint8_t> MetalCompiler::compile(const std::string& source) {
  ObjcRef library = make_library(source);
  std::lock_guard lock(mutex_);
  if (made_.size() >= kMostLibraries) made_.clear();
  made_.insert_or_assign(source, std::move(library));
  return {source.begin(), source.end()};
}

ObjcRef MetalCompiler::take_library(const std::string& source) {
  {
    std::lock_guard lock(mutex_);
    if (const auto made = made_.find(source); made != made_.end()) return std::move(made_.extract(made).mapped());
  }
  return make_library(source);
}

/// Metal shows nobody the code of a GPU.
std::string MetalCompiler::assembly(const std::string& source) {
  return str("no assembly: Metal does not show the code that ", context_.gpu.name, " runs, here are ", source.size(),
             " bytes of MSL\n", source);
}

std::shared_ptr<Executable> load_metal(const MetalContext& context, MetalQueue& queue, MetalCompiler& compiler,
                                       std::span<const uint8_t> binary, const std::string& symbol) {
  TG_CHECK(FormatError, !binary.empty(), "[load] ", context.name, ": got no bytes for ", symbol);
  const AutoreleasePool pool;
  const MetalLibrary& m = metal();
  ObjcRef library;
  try {
    library = compiler.take_library({binary.begin(), binary.end()});
  } catch (const CompileError& e) {
    throw FormatError(str("[load] ", context.name, ": got bytes that are no kernel: ", e.what()));
  }
  const ObjcRef function = ObjcRef::adopt(m.new_function(library.get(), ns_string(symbol)));
  TG_CHECK(FormatError, function, "[load] ", context.name, ": got a program without a kernel ", symbol);
  const ObjcRef descriptor = new_object("MTLComputePipelineDescriptor");
  m.set_function(descriptor.get(), function.get());
  m.set_indirect(descriptor.get(), context.gpu.indirect_commands);
  ObjcId error = nullptr;
  ObjcRef pipeline =
      ObjcRef::adopt(m.new_pipeline(context.gpu.handle.get(), descriptor.get(), /*options=*/0, nullptr, &error));
  TG_CHECK(CompileError, pipeline, "[load] ", context.name, ": kernel ", symbol, ": ", error_text_of(error));
  return std::make_shared<MetalExecutable>(context, queue, std::move(pipeline), symbol);
}

ObjcId metal_pipeline(const Executable& executable) {
  return static_cast<const MetalExecutable&>(executable).pipeline();
}
void check_metal_size(const Executable& executable, const LaunchSize& size) {
  static_cast<const MetalExecutable&>(executable).check(size);
}

}  // namespace tg
