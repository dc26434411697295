/// \file Drivers of GPUs opened at run time: CUDA's driver API and HIP, whose functions are nearly the same, as one
/// table, and what differs between the two behind virtual functions. No header of a vendor is needed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tinygrad/base/error.h"
#include "tinygrad/target/tensor_map.h"

namespace tg {

struct GpuContext;

/// A function of a driver, by its symbol. It returns 0 for success.
template <class... Args> struct GpuFunction {
  const char* symbol = "";
  int (*function)(Args...) = nullptr;
  int operator()(Args... args) const { return function(args...); }
};
template <class> struct GpuFunctionOf;
template <class... Args> struct GpuFunctionOf<int(Args...)> {
  using Type = GpuFunction<Args...>;
};

/// Who may access the memory of a pool (CUmemAccessDesc, hipMemAccessDesc).
struct GpuPoolAccess {
  int location_type = 1;  ///< a device,
  int device = 0;         ///< which one,
  int flags = 3;          ///< reads and writes
};

/// The functions that both drivers have.
struct GpuFunctions {
#define ENTRY(member, parameters, names, cuda, hip) GpuFunctionOf<int parameters>::Type member;
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY
};

/// Errors, whose numbers are the same in both.
namespace gpu_error {
constexpr int kOutOfMemory = 2, kDeinitialized = 4, kNotReady = 600, kPeerAlreadyEnabled = 704;
/// Whether a device that reports it executes nothing any more.
bool is_fatal(int error);
}  // namespace gpu_error

/// What a device says of itself, by questions whose numbers differ.
enum class GpuAttribute {
  kGroupThreads,
  kGroupX,
  kGroupY,
  kGroupZ,
  kGridX,
  kGridY,
  kGridZ,
  kSharedBytes,
  kSharedBytesOptIn,
  kProcessors,
  kL2Bytes,
  kMajor,
  kMinor,
  kMemoryPools,
  kCount
};
/// What a loaded function says of itself; the numbers are the same in both.
enum class GpuFunctionAttribute { kGroupThreads = 0, kSharedBytes = 1, kRegisters = 4, kDynamicSharedBytes = 8 };

/// A tensor map as drivers make it (CUtensorMap): a parameter of a kernel.
struct alignas(kTensorMapAlign) GpuTensorMap {
  unsigned char bytes[kTensorMapBytes] = {};
};

/// A launch as drivers take it.
struct GpuLaunch {
  void* function = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;    ///< in addition to what the kernel declares
  void** parameters = nullptr;  ///< one pointer to each argument
};

/// The library of a driver. Functions that differ between the two are virtual; they throw DeviceError by
/// GpuContext::call().
class GpuDriver {
 public:
  explicit GpuDriver(const char* vendor) : vendor(vendor) {}
  virtual ~GpuDriver() = default;
  GpuDriver(const GpuDriver&) = delete;
  GpuDriver& operator=(const GpuDriver&) = delete;

  const char* const vendor;  ///< "CUDA" or "HIP", for messages
  GpuFunctions f;

  /// Returns the number that the driver has for a question.
  virtual int number_of(GpuAttribute attribute) const = 0;
  /// Returns the architecture: "sm_90a", "gfx942".
  virtual std::string arch(int device) const = 0;
  /// Opens the device: afterwards it can be made current. close() undoes it.
  virtual void open(GpuContext& context) const = 0;
  virtual void close(GpuContext& context) const noexcept = 0;
  /// Makes the device the one that the calling thread's calls are for. Returns an error of the driver.
  virtual int make_current(const GpuContext& context) const = 0;
  virtual const char* make_current_symbol() const = 0;
  /// Lets kernels and copies of `context` access the memory of `peer`.
  virtual void enable_peer(const GpuContext& context, const GpuContext& peer) const = 0;
  virtual void copy_peer(const GpuContext& to_context, void* to, const GpuContext& from_context, void* from,
                         size_t bytes, void* stream) const = 0;
  /// Allows a function that much shared memory in addition to what it declares.
  virtual void allow_shared(const GpuContext& context, void* function, int bytes) const = 0;
  /// Makes the map of a parameter whose memory begins at `address`, a multiple of 16. Throws DeviceError where the
  /// driver has none.
  virtual GpuTensorMap encode_map(const GpuContext& context, const TensorMap& map, void* address) const = 0;
  /// Adds a launch or a copy to a graph, behind the node `after` (nullptr: at the begin); returns the node.
  virtual void* add_kernel(const GpuContext& context, void* graph, void* after, const GpuLaunch& launch) const = 0;
  virtual void* add_copy(const GpuContext& context, void* graph, void* after, void* to, void* from,
                         size_t bytes) const = 0;
  /// Changes the arguments of a node for later launches of an instantiated graph.
  virtual void set_kernel(const GpuContext& context, void* executable, void* node, const GpuLaunch& launch) const = 0;
  virtual void set_copy(const GpuContext& context, void* executable, void* node, void* to, void* from,
                        size_t bytes) const = 0;

  /// Returns "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
  std::string text_of(int error) const;
  /// Throws DeviceError "[symbol] device: error" for anything but success.
  template <class... Args>
  void check(const std::string& device, const GpuFunction<Args...>& function,
             std::type_identity_t<Args>... args) const {
    const int error = function(args...);
    TG_CHECK(DeviceError, error == 0, "[", function.symbol, "] ", device, ": ", text_of(error));
  }
  /// Returns the answer to a question about a device. Throws DeviceError.
  int attribute(int device, GpuAttribute question) const;
  /// Returns the answer, 0 where the driver does not know the question.
  int attribute_if_known(int device, GpuAttribute question) const;
};

/// Finds the functions of an opened library. Throws DeviceError that names the one that is missing.
struct GpuSymbols {
  void* library;
  const char* file;
  const char* expected;  ///< what has all of them: "a driver of CUDA 12 or newer"

  template <class... Args> void operator()(GpuFunction<Args...>& to, const char* symbol) const {
    to.symbol = symbol;
    to.function = reinterpret_cast<int (*)(Args...)>(find(symbol));
  }
  void* find(const char* symbol) const;
};

/// Returns a launch as the node of a graph, in the structure of the driver at hand.
template <class Node> Node kernel_node(const GpuLaunch& l) {
  Node out;
  out.function = l.function;
  for (int i = 0; i < 3; i++) {
    out.grid[i] = l.grid[i];
    out.block[i] = l.block[i];
  }
  out.shared_bytes = l.shared_bytes;
  out.parameters = l.parameters;
  return out;
}

/// Returns libcuda.so.1 or libamdhip64.so, opened and initialized on the first call, with at least one device. Throws
/// DeviceError that says what is missing.
const GpuDriver& cuda_driver();
const GpuDriver& hip_driver();

}  // namespace tg
