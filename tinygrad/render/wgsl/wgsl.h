/// \file WGSL, the language of WebGPU: kernels of grids whose threads compute scalars.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/target/renderer.h"

namespace tg {

/// What a kernel in WGSL is called with, which its first line says: "// NAME buffers BYTES... variables N".
struct WgslHeader {
  std::string name;
  std::vector<int64_t> buffer_bytes;  ///< by parameter: bytes that the kernel may touch; 0: it does not bind it
  int variables = 0;

  std::string line() const;
  /// Reads the first line of `source`. Throws FormatError where that is none.
  static WgslHeader parse(std::string_view source);
  static constexpr const char* kEntryPoint = "main";
  static constexpr int kFirstBuffer = 1;  ///< binding of parameter 0; binding 0 are the arguments
  /// Arguments are 32-bit words: a zero, for each parameter the bytes from where it is bound to its first element, for
  /// each variable its low and its high word.
  size_t argument_words() const { return 1 + buffer_bytes.size() + 2 * static_cast<size_t>(variables); }
};

/// Feature of targets whose driver stops a thread's loops, without an error, after this many iterations of all of them
/// together: llvmpipe.
constexpr const char* kBoundedLoops = "bounded_loops";
constexpr int64_t kMostIterations = 65535;

/// Writes readable WGSL, deterministic: equal programs give equal text.
///
/// The language has integers and floats of 32 bits only. int8, uint8, int16, uint16 and bool are 32-bit values in
/// registers and in a group's memory, and elements of words in buffers: a thread that stores one changes nothing but
/// its bits of the word, atomically. int64, uint64 and floats of less than 32 bits are emulated before rendering
/// (codegen/decomp); float64 is a DTypeError, a kernel of too many iterations a CompileError.
///
/// Compilers of WGSL may take for granted that there are no NaNs and infinities, and that sums and products associate.
/// What depends on neither is written in a way that they cannot see through.
///
/// Every buffer is bound for reading and writing, since two may be parts of one allocation.
class WgslRenderer final : public Renderer {
 public:
  using Renderer::Renderer;
  OpSet ops() const override;
  bool supports(DType d) const override;
  int max_lanes(DType) const override { return 1; }
  bool has_locals() const override { return true; }
  bool has_gather() const override { return false; }
  bool has_blocks() const override { return false; }
  bool has_denormals() const override { return false; }
  int64_t scratch_limit() const override { return target().shared_bytes; }
  std::string render(const Program& p) const override;
};

}  // namespace tg
