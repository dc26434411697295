/// \file OpenCL: source to binary, binary to kernel, and launching it.
#include <algorithm>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/opencl_device.h"
#include "tinygrad/runtime/opencl_images.h"

namespace tg {
namespace {

std::string build_log(const OpenClFunctions& cl, cl_program program, cl_device_id device) {
  size_t n = 0;
  if (cl.GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &n) != CL_SUCCESS || n == 0) return "";
  std::string log(n, '\0');
  cl.GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, n, log.data(), nullptr);
  log.resize(log.find('\0') == std::string::npos ? n : log.find('\0'));
  return log;
}

class OpenClExecutable final : public Executable {
 public:
  OpenClExecutable(const OpenClContext& context, OpenClQueue& queue, OpenClProgram program, cl_kernel kernel,
                   std::string name)
      : context_(context), queue_(queue), program_(std::move(program)), kernel_(kernel), name_(std::move(name)) {}
  ~OpenClExecutable() override { context_.cl.ReleaseKernel(kernel_); }
  void launch(const LaunchArgs& args) override;

 private:
  void check_size(const LaunchArgs& args) const;
  void enqueue(const LaunchArgs& args, const size_t* global, const size_t* local);

  const OpenClContext& context_;
  OpenClQueue& queue_;
  OpenClProgram program_;
  cl_kernel kernel_;
  const std::string name_;
  std::mutex mutex_;  // arguments belong to the kernel until it is enqueued
};

void OpenClExecutable::check_size(const LaunchArgs& args) const {
  const OpenClDevice& d = context_.device;
  int64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    TG_CHECK(DeviceError, args.local[i] <= d.group_limit[i], "[launch] ", context_.name, ": kernel ", name_, " has ",
             args.local[i], " threads along dimension ", i, " of a group, at most ", d.group_limit[i], " are possible");
    threads *= args.local[i];
  }
  TG_CHECK(DeviceError, threads <= d.group_threads, "[launch] ", context_.name, ": kernel ", name_, " has ", threads,
           " threads in a group, at most ", d.group_threads, " are possible");
}

void OpenClExecutable::launch(const LaunchArgs& args) {
  check_size(args);
  size_t global[3], local[3];
  for (size_t i = 0; i < 3; i++) {
    local[i] = static_cast<size_t>(args.local[i]);
    global[i] = static_cast<size_t>(args.global[i]) * local[i];
  }
  global[0] *= static_cast<size_t>(args.thread_extent);
  if (global[0] * global[1] * global[2] == 0) return;
  std::lock_guard lock(mutex_);
  enqueue(args, global, local);
}

void OpenClExecutable::enqueue(const LaunchArgs& args, const size_t* global, const size_t* local) {
  const OpenClFunctions& cl = context_.cl;
  LaunchImages images(context_, queue_, args);
  cl_uint at = 0;
  auto pass = [&](const void* value, size_t bytes) {
    context_.check(cl.SetKernelArg(kernel_, at++, bytes, value), "clSetKernelArg");
  };
  for (int i = 0; i < args.nbuffers; i++) pass(&images.memory()[i], sizeof(cl_mem));
  for (int i = 0; i < args.nbuffers; i++) pass(&args.offsets[i], sizeof(int64_t));
  for (int i = 0; i < args.nvars; i++) pass(&args.vars[i], sizeof(int64_t));
  if (context_.device.compiles_at_launch) queue_.finish_with_thread();
  const cl_int error =
      cl.EnqueueNDRangeKernel(queue_.handle(), kernel_, 3, nullptr, global, local, 0, nullptr, nullptr);
  TG_CHECK(DeviceError, error == CL_SUCCESS, "[launch] ", context_.name, ": kernel ", name_, ", grid ", args.global[0],
           " x ", args.global[1], " x ", args.global[2], " of ", local[0], " x ", local[1], " x ", local[2],
           " threads: ", opencl_error_name(error));
  images.copy_back();
}
}  // namespace

OpenClCompiler::OpenClCompiler(const OpenClContext& context) : context_(context), options_("-cl-std=CL1.2 -w") {
  if (context_.device.exact_division) options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
}

std::string OpenClCompiler::cache_key() const {
  const OpenClDevice& d = context_.device;
  return str(d.platform, ";", d.name, ";", d.driver, ";", options_, d.compiles_at_launch ? ";source" : "");
}

/// Returns no program, and the driver's log, for a source that it rejects.
OpenClProgram OpenClCompiler::build_with(const std::string& declarations, const std::string& source,
                                         const std::string& options, std::string* log) {
  const OpenClFunctions& cl = context_.cl;
  const cl_device_id device = context_.device.id;
  const char* texts[] = {declarations.c_str(), source.c_str()};
  const size_t lengths[] = {declarations.size(), source.size()};
  cl_int error = CL_SUCCESS;
  OpenClProgram program(cl, cl.CreateProgramWithSource(context_.context, 2, texts, lengths, &error));
  context_.check(error, "clCreateProgramWithSource");
  error = cl.BuildProgram(program.get(), 1, &device, options.c_str(), nullptr, nullptr);
  if (error == CL_SUCCESS) return program;
  *log = str(opencl_error_name(error), "\n", build_log(cl, program.get(), device));
  return {};
}

OpenClProgram OpenClCompiler::build(const std::string& source) {
  {
    std::lock_guard lock(mutex_);
    if (auto built = built_.extract(source)) return std::move(built.mapped());
  }
  std::string log;
  OpenClProgram program;
  if (context_.device.compiles_at_launch)
    program = build_with(opencl_declarations(source), source, options_ + kWithoutOpenClHeader, &log);
  if (!program.get()) {
    program = build_with("", source, options_, &log);
    if (program.get() && context_.device.compiles_at_launch) header_needed_++;
  }
  TG_CHECK(CompileError, program.get(), "[compile] ", context_.name, ", ", context_.device.name, ": ", log);
  return program;
}

std::vector<uint8_t> OpenClCompiler::compile(const std::string& source) {
  constexpr size_t kMostBuilt = 64;  // that nobody has loaded
  OpenClProgram program = build(source);
  if (context_.device.compiles_at_launch) {
    std::lock_guard lock(mutex_);
    if (built_.size() >= kMostBuilt) built_.clear();
    built_.insert_or_assign(source, std::move(program));
    return {source.begin(), source.end()};
  }
  const OpenClFunctions& cl = context_.cl;
  size_t bytes = 0;
  context_.check(cl.GetProgramInfo(program.get(), CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr),
                 "clGetProgramInfo");
  std::vector<uint8_t> binary(bytes);
  uint8_t* to = binary.data();
  context_.check(cl.GetProgramInfo(program.get(), CL_PROGRAM_BINARIES, sizeof to, &to, nullptr), "clGetProgramInfo");
  TG_CHECK(CompileError, bytes > 0, "[compile] ", context_.name, ": the driver gives no binaries");
  return binary;
}

/// Some drivers' binaries are assembly; what others have is their secret.
std::string OpenClCompiler::assembly(const std::string& source) {
  const OpenClDevice& d = context_.device;
  if (d.compiles_at_launch) return str(d.platform, " compiles kernels when they are launched first");
  const std::vector<uint8_t> binary = compile_cached(source);
  const bool text = std::all_of(binary.begin(), binary.end(),
                                [](uint8_t c) { return (c >= 32 && c < 127) || c == '\n' || c == '\t' || c == '\r'; });
  if (text) return {binary.begin(), binary.end()};
  return str(binary.size(), " bytes in the format of ", d.platform);
}

namespace {
/// Returns the program in a driver's binary. Throws FormatError where it is none.
OpenClProgram program_of_binary(const OpenClContext& context, std::span<const uint8_t> binary) {
  const OpenClFunctions& cl = context.cl;
  const cl_device_id device = context.device.id;
  const size_t bytes = binary.size();
  const uint8_t* data = binary.data();
  cl_int error = CL_SUCCESS, status = CL_SUCCESS;
  OpenClProgram program(cl, cl.CreateProgramWithBinary(context.context, 1, &device, &bytes, &data, &status, &error));
  if (error == CL_SUCCESS) error = status;
  if (error == CL_SUCCESS) error = cl.BuildProgram(program.get(), 1, &device, "", nullptr, nullptr);
  TG_CHECK(FormatError, error == CL_SUCCESS, opencl_error_name(error));
  return program;
}

OpenClProgram program_of(const OpenClContext& context, OpenClCompiler& compiler, std::span<const uint8_t> binary) {
  try {
    if (context.device.compiles_at_launch) return compiler.build(std::string(binary.begin(), binary.end()));
    return program_of_binary(context, binary);
  } catch (const Error& e) {
    throw FormatError(
        str("[load] ", context.name, ": got bytes that are no program of ", context.device.name, ": ", e.what()));
  }
}
}  // namespace

std::shared_ptr<Executable> load_opencl(const OpenClContext& context, OpenClQueue& queue, OpenClCompiler& compiler,
                                        std::span<const uint8_t> binary, const std::string& symbol) {
  TG_CHECK(FormatError, !binary.empty(), "[load] ", context.name, ": got no bytes for ", symbol);
  OpenClProgram program = program_of(context, compiler, binary);
  cl_int error = CL_SUCCESS;
  cl_kernel kernel = context.cl.CreateKernel(program.get(), symbol.c_str(), &error);
  TG_CHECK(FormatError, error == CL_SUCCESS, "[load] ", context.name, ": got a program without a kernel ", symbol, ": ",
           opencl_error_name(error));
  return std::make_shared<OpenClExecutable>(context, queue, std::move(program), kernel, symbol);
}

}  // namespace tg
