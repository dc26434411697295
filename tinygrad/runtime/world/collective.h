/// \file Collective operations on host memory: what each process of a group has and gets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/uop/arg.h"

namespace tg {

/// One operation of a group of n processes. `elements`: of a piece; see CollectiveKind for how many pieces there are.
struct Collective {
  CollectiveKind what = CollectiveKind::kAllReduce;
  Ops op = Ops::ADD;
  DType dtype = dtypes::float32;
  int64_t elements = 0;
  std::vector<int> group{};  ///< ranks, in the order of the pieces; this process is one of them
  int root = 0;              ///< kBroadcast: position in the group; kSend, kReceive: rank of the other one
  size_t piece_bytes() const { return static_cast<size_t>(elements) * static_cast<size_t>(dtype.itemsize()); }
};

/// "allreduce ADD of 1000 float32 by 4 ranks".
std::string text_of(const Collective& c);
/// Returns a number that differs where two operations do: processes compare it.
uint64_t fingerprint_of(const Collective& c);

}  // namespace tg
