/// \file OpenCL: source to binary, binary to kernel, and launching it.
#include <algorithm>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/opencl_device.h"

namespace tg {
namespace {

/// Releases a program when it goes out of scope.
struct ProgramHolder {
  cl_program program = nullptr;
  ~ProgramHolder() {
    if (program) opencl().ReleaseProgram(program);
  }
};

std::string build_log(cl_program program, cl_device_id device) {
  size_t n = 0;
  if (opencl().GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &n) != CL_SUCCESS || n == 0)
    return "";
  std::string log(n, '\0');
  opencl().GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, n, log.data(), nullptr);
  log.resize(log.find('\0') == std::string::npos ? n : log.find('\0'));
  return log;
}

class OpenClExecutable final : public Executable {
 public:
  OpenClExecutable(const OpenClContext& context, OpenClQueue& queue, cl_program program, cl_kernel kernel,
                   std::string name)
      : context_(context), queue_(queue), program_(program), kernel_(kernel), name_(std::move(name)) {}
  ~OpenClExecutable() override {
    opencl().ReleaseKernel(kernel_);
    opencl().ReleaseProgram(program_);
  }
  void launch(const LaunchArgs& args) override;

 private:
  void check_size(const LaunchArgs& args) const;

  const OpenClContext& context_;
  OpenClQueue& queue_;
  cl_program program_;
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
  const OpenClFunctions& cl = opencl();
  std::lock_guard lock(mutex_);
  cl_uint at = 0;
  auto pass = [&](const void* value, size_t bytes) {
    context_.check(cl.SetKernelArg(kernel_, at++, bytes, value), "clSetKernelArg");
  };
  for (int i = 0; i < args.nbuffers; i++) pass(&args.buffers[i], sizeof(cl_mem));
  for (int i = 0; i < args.nbuffers; i++) pass(&args.offsets[i], sizeof(int64_t));
  for (int i = 0; i < args.nvars; i++) pass(&args.vars[i], sizeof(int64_t));
  const cl_int error =
      cl.EnqueueNDRangeKernel(queue_.handle(), kernel_, 3, nullptr, global, local, 0, nullptr, nullptr);
  TG_CHECK(DeviceError, error == CL_SUCCESS, "[launch] ", context_.name, ": kernel ", name_, ", grid ", args.global[0],
           " x ", args.global[1], " x ", args.global[2], " of ", local[0], " x ", local[1], " x ", local[2],
           " threads: ", opencl_error_name(error));
}
}  // namespace

OpenClCompiler::OpenClCompiler(const OpenClContext& context) : context_(context), options_("-cl-std=CL1.2 -w") {
  if (context_.device.exact_division) options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
}

std::string OpenClCompiler::cache_key() const {
  const OpenClDevice& d = context_.device;
  return d.platform + ";" + d.name + ";" + d.driver + ";" + options_;
}

std::vector<uint8_t> OpenClCompiler::compile(const std::string& source) {
  const OpenClFunctions& cl = opencl();
  const cl_device_id device = context_.device.id;
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_int error = CL_SUCCESS;
  ProgramHolder p;
  p.program = cl.CreateProgramWithSource(context_.context, 1, &text, &length, &error);
  context_.check(error, "clCreateProgramWithSource");
  error = cl.BuildProgram(p.program, 1, &device, options_.c_str(), nullptr, nullptr);
  TG_CHECK(CompileError, error == CL_SUCCESS, "[compile] ", context_.name, ", ", context_.device.name, ": ",
           opencl_error_name(error), "\n", build_log(p.program, device));
  size_t bytes = 0;
  context_.check(cl.GetProgramInfo(p.program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr),
                 "clGetProgramInfo");
  std::vector<uint8_t> binary(bytes);
  uint8_t* to = binary.data();
  context_.check(cl.GetProgramInfo(p.program, CL_PROGRAM_BINARIES, sizeof to, &to, nullptr), "clGetProgramInfo");
  TG_CHECK(CompileError, bytes > 0, "[compile] ", context_.name, ": the driver gives no binaries");
  return binary;
}

/// Some drivers' binaries are assembly; what others have is their secret.
std::string OpenClCompiler::assembly(const std::string& source) {
  const std::vector<uint8_t> binary = compile_cached(source);
  const bool text = std::all_of(binary.begin(), binary.end(),
                                [](uint8_t c) { return (c >= 32 && c < 127) || c == '\n' || c == '\t' || c == '\r'; });
  if (text) return {binary.begin(), binary.end()};
  return str(binary.size(), " bytes in the format of ", context_.device.platform);
}

std::shared_ptr<Executable> load_opencl(const OpenClContext& context, OpenClQueue& queue,
                                        std::span<const uint8_t> binary, const std::string& symbol) {
  const OpenClFunctions& cl = opencl();
  const cl_device_id device = context.device.id;
  const size_t bytes = binary.size();
  const uint8_t* data = binary.data();
  TG_CHECK(FormatError, bytes > 0, "[load] ", context.name, ": got no bytes for ", symbol);
  cl_int error = CL_SUCCESS, status = CL_SUCCESS;
  ProgramHolder p;
  p.program = cl.CreateProgramWithBinary(context.context, 1, &device, &bytes, &data, &status, &error);
  if (error == CL_SUCCESS) error = status;
  if (error == CL_SUCCESS) error = cl.BuildProgram(p.program, 1, &device, "", nullptr, nullptr);
  TG_CHECK(FormatError, error == CL_SUCCESS, "[load] ", context.name, ": got bytes that are no program of ",
           context.device.name, ": ", opencl_error_name(error));
  cl_kernel kernel = cl.CreateKernel(p.program, symbol.c_str(), &error);
  TG_CHECK(FormatError, error == CL_SUCCESS, "[load] ", context.name, ": got a program without a kernel ", symbol, ": ",
           opencl_error_name(error));
  return std::make_shared<OpenClExecutable>(context, queue, std::exchange(p.program, nullptr), kernel, symbol);
}

}  // namespace tg
