/// \file The parts of an OpenCL device: context, queue, compiler, loaded kernels. Included by its own sources alone.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/runtime/opencl_library.h"
#include "tinygrad/runtime/queue.h"
#include "tinygrad/target/target.h"

namespace tg {

/// A kind of device that runs OpenCL.
struct OpenClKind {
  const char* name;                     ///< "CL"
  const char* platform;                 ///< what the names of its platforms begin with; empty: all are of the kind
  const OpenClFunctions& (*library)();  ///< throws DeviceError that says what is missing
  bool images;                          ///< kernels use images unless IMAGE says otherwise
};

/// Images of one device that are views of its buffers, kept while these live. Thread-safe.
class OpenClImages {
 public:
  /// Returns the image of the bytes of a buffer from `offset` on; nullptr where they cannot be one: the device has no
  /// such views, or none that begins there.
  cl_mem view(const OpenClDevice& device, cl_context context, MemoryPlace at, const ImageSize& size);
  /// Releases the images of a buffer.
  void drop(const OpenClFunctions& functions, void* buffer);

 private:
  struct View {
    size_t offset = 0;
    ImageSize size;
    cl_mem image = nullptr;
  };
  std::mutex mutex_;
  std::unordered_map<void*, std::vector<View>> views_;  // by buffer
};
/// Makes an image with memory of its own, or one of `buffer` with rows of `pitch` bytes; nullptr when there is none,
/// with the error.
cl_mem make_opencl_image(const OpenClFunctions& cl, cl_context context, const ImageSize& size, cl_mem buffer,
                         size_t pitch, cl_int* error);

/// An opened device; lives until the process ends.
struct OpenClContext {
  OpenClContext(OpenClDevice d, std::string device_name);
  OpenClDevice device;
  const OpenClFunctions& cl;
  std::string name;  ///< canonical: "CL", "CL:1"
  cl_context context = nullptr;
  mutable OpenClImages images;

  void check(cl_int error, const char* call) const { check_opencl(error, call, name); }
};

/// An in-order command queue.
class OpenClQueue final : public Queue {
 public:
  explicit OpenClQueue(const OpenClContext& context);
  void copy_in(MemoryPlace dst, const void* src, size_t n) override;
  void copy_out(void* dst, MemoryPlace src, size_t n) override;
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override;
  EventRef record() override;
  void wait_for(const EventRef& event) override;
  void flush() override;
  void wait() override;
  cl_command_queue handle() const { return queue_; }
  /// Waits for the queue when this thread ends, and so at exit().
  void finish_with_thread() const;

 private:
  const OpenClContext& context_;
  cl_command_queue queue_ = nullptr;
};

/// A program, released when it goes out of scope.
class OpenClProgram {
 public:
  OpenClProgram() = default;
  OpenClProgram(const OpenClFunctions& functions, cl_program program) : functions_(&functions), program_(program) {}
  OpenClProgram(OpenClProgram&& other) noexcept
      : functions_(other.functions_), program_(std::exchange(other.program_, nullptr)) {}
  OpenClProgram& operator=(OpenClProgram&& other) noexcept {
    std::swap(functions_, other.functions_);
    std::swap(program_, other.program_);
    return *this;
  }
  ~OpenClProgram() {
    if (program_) functions_->ReleaseProgram(program_);
  }
  cl_program get() const { return program_; }

 private:
  const OpenClFunctions* functions_ = nullptr;
  cl_program program_ = nullptr;
};

/// OpenCL C to the device's own binary; to the source itself where the driver compiles at the launch.
class OpenClCompiler final : public Compiler {
 public:
  explicit OpenClCompiler(const OpenClContext& context);
  /// Returns the program of a source, the one that compile() has just built where there is one. Throws CompileError
  /// with the driver's log.
  OpenClProgram build(const std::string& source);
  std::vector<uint8_t> compile(const std::string& source) override;
  std::string cache_key() const override;
  std::string assembly(const std::string& source) override;
  std::string cache_table() const override { return "compile_opencl"; }
  /// Returns how many sources were compiled with clang's header because opencl_declarations() lacked what they call.
  int64_t header_needed() const { return header_needed_; }

 private:
  OpenClProgram build_with(const std::string& declarations, const std::string& source, const std::string& options,
                           std::string* log);

  const OpenClContext& context_;
  std::string options_;
  std::mutex mutex_;
  std::map<std::string, OpenClProgram> built_;  // by source: not loaded yet
  std::atomic<int64_t> header_needed_ = 0;
};

/// Loads what `compiler` has made. Throws FormatError for bytes that are none of this device, or lack the kernel
/// `symbol`.
std::shared_ptr<Executable> load_opencl(const OpenClContext& context, OpenClQueue& queue, OpenClCompiler& compiler,
                                        std::span<const uint8_t> binary, const std::string& symbol);

/// Returns the target of a kind for what DEV says behind it: a renderer, "OPENCL" or none, and how kernels run:
/// "workgroups" as grids of groups, "lanes" as kernels of a host, each thread an iteration of the outermost loop with
/// vectors. By default processors take the latter, unless kernels are to use `images`, which grids alone do. Throws
/// DeviceError for anything else.
Target opencl_target(const OpenClDevice& device, const std::string& renderer, const std::string& arch,
                     bool images = false, const std::string& kind = "CL");

}  // namespace tg
