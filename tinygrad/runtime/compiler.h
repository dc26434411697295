/// \file Compiler: source text to bytes, behind the disk cache. Executable: loaded code that can be launched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/target/target.h"

namespace tg {

/// Turns a renderer's output into what the device loads. Thread-safe: kernels compile in parallel.
class Compiler {
 public:
  virtual ~Compiler() = default;
  /// Throws CompileError with the tool's message.
  virtual std::vector<uint8_t> compile(const std::string& source) = 0;
  /// Returns everything besides the source that changes the result: tool and version, flags, processor.
  virtual std::string cache_key() const = 0;
  /// Returns human-readable machine code of the source, for DEBUG=7.
  virtual std::string assembly(const std::string& source) = 0;
  /// Returns the name of the cache table: "compile_llvm", ...
  virtual std::string cache_table() const = 0;
  /// Returns whether bytes from the cache were made by this compiler and can be loaded.
  virtual bool valid(std::span<const uint8_t> binary) const { return !binary.empty(); }

  /// compile() behind the disk cache (CCACHE=0 turns it off). Entries that are not valid() are compiled again.
  std::vector<uint8_t> compile_cached(const std::string& source);
};

/// The C ABI of host kernels: the kernel runs its outermost THREAD range over [begin, end); one without such a range
/// gets (0, 1).
using HostKernel = void (*)(void* const* buffers, const int64_t* vars, int64_t begin, int64_t end);

/// How much of a kernel runs where.
struct LaunchSize {
  int64_t thread_extent = 1;      ///< host: size of the outermost THREAD range, 1 when there is none
  int64_t global[3] = {1, 1, 1};  ///< groups of the grid; when one is 0 nothing runs
  int64_t local[3] = {1, 1, 1};   ///< threads of a group
  int64_t shared_bytes = 0;       ///< memory of a group that the kernel declares, bytes
  bool is_empty() const { return global[0] == 0 || global[1] == 0 || global[2] == 0; }
};

/// One launch. Pointers are borrowed for the call, in a BatchCommand as long as the batch lives.
struct LaunchArgs : LaunchSize {
  /// By parameter of the kernel: the handle of its memory. Where Device::handles_are_addresses() it is the address of
  /// the first byte; otherwise the allocation, of which `offsets` has the first byte.
  void* const* buffers = nullptr;
  /// By parameter: bytes from the begin of the allocation; nullptr where handles are addresses.
  const int64_t* offsets = nullptr;
  int nbuffers = 0;
  const ImageSize* images = nullptr;  ///< by parameter; nullptr: the kernel uses no images
  const int64_t* vars = nullptr;      ///< variables in the order of the kernel's parameters, narrower values widened
  int nvars = 0;
  int max_threads = 0;  ///< host: threads to use at most; 1 runs inline, 0 all of the pool
};

/// Loaded code. Thread-safe: launching does not change it.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs the kernel. On devices with a queue it is a command of Device::queue(), and this returns before it is done;
  /// the arguments are copied. Throws DeviceError when it cannot be launched (a grid beyond the device's limits), or
  /// when an earlier command failed.
  virtual void launch(const LaunchArgs& args) = 0;
  /// Returns the function itself where kernels are host code, so that replaying costs one indirect call; else nullptr.
  virtual HostKernel host_kernel() const { return nullptr; }
};

}  // namespace tg
