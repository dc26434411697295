/// \file Running a kernel on test memory: the time of a launch, and whether two versions compute the same.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/engine/compile.h"
#include "tinygrad/runtime/allocator.h"

namespace tg {

/// Returns the tolerance between the results of two versions of a kernel, relative to the larger of the two values and
/// of the mean magnitude: from its types and the lengths of its sums. 0 for kernels of integers.
double result_tolerance(UOp sink);
/// Returns whether `n` elements of host memory agree. Integers and bools: exactly. NaN agrees with NaN.
bool results_agree(DType dtype, const void* want, const void* got, int64_t n, double tolerance);
/// Returns the first element that does not agree, as text with both values; empty when all do. Differences are relative
/// to at least `magnitude`.
std::string first_difference(DType dtype, const void* want, const void* got, int64_t n, double tolerance,
                             double magnitude);
/// Returns the mean of the absolute values of finite elements; 0 for integers.
double mean_magnitude(DType dtype, const void* memory, int64_t n);
/// Returns whether a kernel can run on random inputs: no store address and no division of indices depends on them.
bool runs_on_any_numbers(UOp sink);

/// Memory of a device in the sizes of a kernel's parameters, filled with harmless values; variables at their maximum.
class Trial {
 public:
  /// Throws OutOfMemoryError where it does not fit.
  Trial(UOp sink, Device& device);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Runs the reference version once on fresh values; the others have to store the same.
  void remember(const CompiledKernel& kernel);
  /// Runs a version once on fresh values and compares; `seconds` gets the time it took.
  bool agrees(const CompiledKernel& kernel, double* seconds = nullptr);
  /// Returns the seconds of one launch: the minimum of several, of fewer when it is clearly slower than `best` or takes
  /// long.
  double time(const CompiledKernel& kernel, double best);
  /// Returns the median seconds of each, launched alternately.
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
  void read(size_t slot, std::vector<char>* to);
  double launch(const CompiledKernel& kernel);

  Device& device_;
  Allocator& allocator_;  // the statistics of the device's own count the user's memory
  std::vector<Param> params_;
  std::vector<void*> handles_;
  std::vector<int64_t> offsets_;
  std::vector<std::pair<std::string, int64_t>> vars_;
  bool zeros_ = false;     ///< integers are addresses
  bool in_place_ = false;  ///< it reads what it writes
  double tolerance_ = 0;
};

}  // namespace tg
