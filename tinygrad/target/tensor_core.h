/// \file Matrix and dot product instructions as data: one table of descriptors for processors and GPUs, see
/// docs/kernels.md.
#pragma once
#include <string_view>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/target/target.h"

namespace tg {

/// out[n, m] += sum over k of a[m, k] * b[k, n], computed cooperatively by `threads` threads, each of which holds
/// `elements` of the three.
///
/// With one thread the n axis is the lanes: of `a` a thread holds k values of one row, of `b` k values for each lane,
/// and the k values are packed in a 32-bit word. Such an instruction is elementwise on words: lane = acc + a.word .
/// b.word, whatever the number of lanes.
struct TensorCore {
  const char* name;     ///< of the instruction; the argument of WMMA
  const char* arch;     ///< of the target
  const char* feature;  ///< any of these, separated by blanks; empty: every processor of the architecture
  int n, m, k;          ///< n = 0: as many as there are lanes
  int threads;
  int elements[3];
  DType a, b, out;
  bool exact;  ///< gives the same numbers as separate operations do
};

/// Returns all of them; TC_SELECT refers to their indices.
const std::vector<TensorCore>& tensor_core_table();
/// Returns those a target has, best first.
std::vector<const TensorCore*> tensor_cores_of(const Target& target);
/// Looks one up by the argument of a WMMA; null when there is none of this name.
const TensorCore* find_tensor_core(std::string_view name);

}  // namespace tg
