/// \file GpuFigures: what the processors of a GPU have and what that costs, for plans of kernels and for the model of
/// docs/gpu_codegen.md.
#pragma once
#include "tinygrad/target/target.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {

/// A GPU: `units` processors (NVIDIA's SMs, AMD's compute units), each with `schedulers` that start an instruction of a
/// warp per clock. From the vendors' data sheets and architecture documents, of the largest GPU of an architecture.
struct GpuFigures {
  const char* arch;            ///< what the architecture of a target begins with
  int units;                   ///< processors of the GPU
  double clock;                ///< GHz
  double memory;               ///< bytes a nanosecond from memory
  double l2;                   ///< bytes a clock from the second level cache to one unit
  double shared;               ///< bytes a clock of the memory that a group shares
  int warp;                    ///< threads of a warp
  int schedulers;              ///< of a unit
  int warps;                   ///< of a unit at a time, at most
  int64_t registers;           ///< of 32 bits, of a unit
  int registers_each;          ///< of a thread, at most
  int64_t shared_bytes;        ///< of a unit
  double matrix16;             ///< operations a clock of a unit: matrices of 16-bit factors
  double matrix8, matrix32;    ///< of 8-bit and of 32-bit factors
  double multiply_adds = 256;  ///< operations a clock of a unit: multiply-adds of float32
  double warpgroup = 1;        ///< times as many by instructions that read their factors from memory
  bool widens_fp8 = false;  ///< others multiply factors of fp8 as 16-bit ones, to which each is converted in registers

  /// True where an instruction converts its factors first.
  bool widens(const TensorCore& core) const { return widens_fp8 && core.a.is_fp8() && !core.reads_memory(); }
  /// Returns the clocks of a unit that one matrix instruction takes.
  double clocks(const TensorCore& core) const {
    const double rate = core.multiply_adds()                     ? multiply_adds
                        : core.a.itemsize() == 2 || widens(core) ? matrix16
                        : core.a.itemsize() == 1                 ? matrix8
                                                                 : matrix32;
    return 2.0 * core.n * core.m * core.k / (core.reads_memory() ? rate * warpgroup : rate);
  }
};

/// Returns the figures of a target's architecture, those of a small GPU where it is not known.
const GpuFigures& gpu_figures(const Target& target);

}  // namespace tg
