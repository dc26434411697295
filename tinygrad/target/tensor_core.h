/// \file Matrix and dot product instructions as data: one table of descriptors for processors and GPUs, see
/// docs/kernels.md.
#pragma once
#include <string_view>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/target/target.h"

namespace tg {

/// out[n, m] += sum over k of a[m, k] * b[k, n], done by `threads` threads together, each of which holds `elements` of
/// the three.
///
/// With one thread the n axis is the lanes: of `a` a thread holds k numbers of one row, of `b` k numbers for each lane,
/// and the k numbers lie side by side in a word of 32 bits. Such an instruction is elementwise on words: lane = acc +
/// a.word . b.word, whatever the number of lanes.
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

/// All of them; their places are what TC_SELECT names.
const std::vector<TensorCore>& tensor_core_table();
/// Those a target has, best first.
std::vector<const TensorCore*> tensor_cores_of(const Target& target);
/// By the argument of a WMMA; null when there is none of this name.
const TensorCore* find_tensor_core(std::string_view name);

}  // namespace tg
