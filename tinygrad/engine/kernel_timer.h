/// \file Trying a kernel out: scratch memory in place of its parameters, time of a launch, and whether two versions
/// compute the same.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/engine/compile.h"
#include "tinygrad/runtime/allocator.h"

namespace tg {

/// Greatest difference that two versions of a kernel may show in what they store, relative to the greater of the two
/// numbers and of the average magnitude: from the types it computes in and the lengths of its sums. 0 where it computes
/// with integers alone.
double result_tolerance(UOp sink);
/// Whether `n` elements of host memory agree. Integers and bools: exactly. NaN agrees with NaN.
bool results_agree(DType dtype, const void* want, const void* got, int64_t n, double tolerance);
/// The first element that does not agree, as text with both numbers; empty when all do. `magnitude` is the least that
/// differences are relative to.
std::string first_difference(DType dtype, const void* want, const void* got, int64_t n, double tolerance,
                             double magnitude);
/// Average of the absolute values of finite elements; 0 for integers.
double mean_magnitude(DType dtype, const void* memory, int64_t n);
/// Whether a kernel can run on made-up numbers at all: it does not store where they tell it to, nor divide by indices
/// made of them.
bool runs_on_any_numbers(UOp sink);

/// Memory like that of a kernel's parameters, full of harmless numbers, variables at their greatest.
class Trial {
 public:
  /// Throws OutOfMemoryError where it does not fit.
  explicit Trial(UOp sink);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Runs it once on fresh numbers; what it stores is what others have to store.
  void remember(const CompiledKernel& kernel);
  /// Runs it once on fresh numbers and compares; `seconds` tells how long it took.
  bool agrees(const CompiledKernel& kernel, double* seconds = nullptr);
  /// Seconds of one launch: the best of several, fewer when it is clearly slower than `best` or when a launch takes
  /// long.
  double time(const CompiledKernel& kernel, double best);
  /// Median seconds of each, launched in turns.
  std::vector<double> compare(std::span<const CompiledKernel* const> kernels);

 private:
  struct Param {
    size_t bytes = 0;
    DType dtype;
    bool written = false;
    void* memory = nullptr;
    std::vector<char> want;
  };
  void fill(size_t slot);
  void fill_written();
  double launch(const CompiledKernel& kernel);

  std::unique_ptr<Allocator> allocator_;  // not the device's: its statistics are about the user's memory
  std::vector<Param> params_;
  std::vector<void*> handles_;
  std::vector<std::pair<std::string, int64_t>> vars_;
  bool zeros_ = false;     ///< integers are addresses
  bool in_place_ = false;  ///< it reads what it writes
  double tolerance_ = 0;
};

}  // namespace tg
