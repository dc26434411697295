/// \file The abstract Renderer: the language properties code generation needs, and the step from linear UOps to text.
#pragma once
#include <algorithm>
#include <string>

#include "tinygrad/target/program.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {

/// One target language on one target. Capabilities are data; a C-like language differs from another by a table.
class Renderer {
 public:
  explicit Renderer(Target t) : target_(std::move(t)) {}
  virtual ~Renderer() = default;
  const Target& target() const { return target_; }

  /// The ALU ops of the language; others are decomposed (EXP2, LOG2, SIN, POW, MULACC, MAX, CMPEQ, SUB, NEG, FDIV,
  /// SQRT, TRUNC, THREEFRY, ...). Always needed: ADD, MUL, CMPLT, CMPNE, AND, OR, XOR, SHL, SHR, CDIV and CMOD, that of
  /// floats (C's fmod) included, WHERE, casts. EXP2, LOG2 and SIN have to be within 4 ulp for every argument.
  virtual OpSet ops() const = 0;
  /// The types it computes in; others are emulated: float16, bfloat16 and fp8 by float32, integers of 64 bits by
  /// halves. Nothing stands for float64: without it, values of it are a DTypeError.
  virtual bool supports(DType d) const = 0;
  /// The maximum number of lanes of the VECTOR axis for values of `d` (1: no vectors).
  virtual int max_lanes(DType d) const {
    return d.itemsize() > 0 ? std::max(target_.vector_bytes / d.itemsize(), 1) : 1;
  }
  virtual bool has_threads() const { return false; }  ///< THREAD ranges
  virtual bool has_locals() const { return false; }   ///< GLOBAL/LOCAL ranges, barriers
  /// Bytes of adjacent elements that a thread of a group reads or writes at once; 0: an element.
  virtual int64_t run_bytes() const { return 0; }
  /// Bytes of scratch memory that a thread can have, where there are no workgroups.
  virtual int64_t scratch_limit() const { return int64_t{1} << 40; }
  virtual bool has_gather() const { return true; }  ///< vector INDEX that is not unit stride
  virtual bool has_blocks() const { return true; }  ///< strided vectors side by side as blocks, transposed in registers
  /// Whether float32 keeps numbers below 2^-126; elsewhere arithmetic takes them for zero.
  virtual bool has_denormals() const { return true; }
  virtual bool has_prefetch() const { return false; }  ///< CUSTOM "prefetch"
  /// WHERE with the tag kRarelyElse: operands used by its last source alone are computed only when some lane selects
  /// it.
  virtual bool has_rare_choices() const { return false; }
  static constexpr uint64_t kRarelyElse = 0x7261726c;
  /// Sums over 4-bit values with 32-bit words as lanes (codegen/opt/packed4.h) are faster than bytes as lanes.
  virtual bool has_packed4() const { return false; }
  /// The matrix instructions it can emit, best first.
  virtual std::vector<const TensorCore*> tensor_cores() const { return {}; }
  /// Returns the text of one function.
  virtual std::string render(const Program& p) const = 0;

 private:
  Target target_;
};

}  // namespace tg
