/// \file Compiler: source text to bytes, behind the disk cache. Executable: loaded code that can be launched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

/// One launch. Pointers are borrowed for the call.
struct LaunchArgs {
  void* const* buffers = nullptr;  ///< device handles in the order of the kernel's parameters
  int nbuffers = 0;
  const int64_t* vars = nullptr;  ///< variables in the order of the kernel's parameters, narrower values widened
  int nvars = 0;
  int64_t thread_extent = 1;  ///< size of the outermost THREAD range, 1 when there is none
  int max_threads = 0;        ///< host: threads to use at most; 1 runs inline, 0 all of the pool
  int global[3] = {1, 1, 1};  ///< GPU: groups
  int local[3] = {1, 1, 1};   ///< GPU: threads of a group
};

/// Loaded code. Thread-safe: launching does not change it.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs the kernel. Devices with a queue may return before it is done; the host has finished on return.
  virtual void launch(const LaunchArgs& args) = 0;
  /// Returns the function itself where kernels are host code, so that replaying costs one indirect call; else nullptr.
  virtual HostKernel host_kernel() const { return nullptr; }
};

}  // namespace tg
