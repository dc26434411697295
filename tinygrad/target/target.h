/// \file Target: capabilities of the machine a kernel is compiled for, as plain data. Detection is in
/// runtime/cpu_detect.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// Two-dimensional images (textures) of a target, whose pixels are four float32 or float16 numbers: kernels read and
/// write some buffers as such, see codegen/expand/images.h.
struct ImageLimits {
  int64_t width = 0, height = 0;  ///< pixels along each side, at most; 0: kernels use no images
  int64_t pitch = 1;              ///< rows of an image with several of them are multiples of so many pixels
};

/// How a kernel sees a buffer that it uses as an image: rows of pixels that follow each other in memory.
struct ImageSize {
  int64_t width = 0, height = 0;  ///< pixels; 0: it uses the buffer as it is
  int itemsize = 0;               ///< bytes of one of the four numbers: 4 or 2
  bool written = false;           ///< it writes pixels; otherwise it reads some
};

/// A code generation target. Two targets with equal keys get the same code.
struct Target {
  std::string device;                 ///< device kind without an index: "CPU", "NULL", "INTERP", ...
  std::string renderer;               ///< "LLVM", "CLANG", ...; empty when the device renders nothing
  std::string arch;                   ///< "x86_64", "arm64", "riscv64"
  std::string cpu;                    ///< the compiler's name of the processor: "znver4", "x86-64-v3", "apple-m1", ...
  std::vector<std::string> features;  ///< LLVM feature names that are present, sorted: "avx2", "fma", ...
  int vector_bytes = 16;              ///< widest vector register in bytes: 16, 32 or 64; 1: no vectors
  int vector_registers = 16;          ///< architectural vector registers
  int64_t l1_bytes = 32 << 10;        ///< data cache of one core
  int64_t l2_bytes = 512 << 10;       ///< second level cache of one core
  int64_t l3_bytes = 8 << 20;         ///< last level cache shared by the cores
  int64_t shared_bytes = 32 << 10;    ///< memory the threads of a workgroup share, on targets with workgroups
  int cores = 1;                      ///< threads a kernel may be split over

  // Grids, on targets with workgroups.
  int64_t group_threads = 1024;                                    ///< threads of a workgroup
  int64_t group_limit[3] = {1024, 1024, 64};                       ///< threads along each dimension of a workgroup
  int64_t grid_limit[3] = {(int64_t{1} << 31) - 1, 65535, 65535};  ///< workgroups along each dimension of the grid

  ImageLimits images;

  /// Says whether the processor has a feature, by LLVM's name of it.
  bool has(std::string_view feature) const;
  /// True when a * b + c is one instruction, rounded once.
  bool has_fma() const { return arch == "arm64" || arch == "riscv64" || has("fma"); }
  /// Returns "+avx2,+fma,..." as compilers expect it.
  std::string feature_string() const;
  /// Returns everything that changes code, as text; part of every cache key.
  std::string key() const;
};

}  // namespace tg
