/// \file What a realize() has to compute: nodes without shards, for the tensors' nodes and for every pending expression
/// that reads what they overwrite.
#pragma once
#include <vector>

#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

struct RealizePlan {
  struct Root {
    UOpRef node;    ///< what is computed
    UOpRef source;  ///< what it stands for: another node where a constant needs storage, or a function is inlined
  };
  /// A value of several devices: its shards are roots, or storage that is there.
  struct Sharded {
    UOpRef value;
    std::vector<UOpRef> parts;
    ShardAxes axes;
  };
  std::vector<Root> roots;  ///< each once
  std::vector<Sharded> sharded;
  Writes writes;
  UOps nodes() const;  ///< of the roots
};

/// Plans under a GraphScope.
RealizePlan plan_realize(const Tensors& tensors);
/// Whether a value needs no kernel: storage, a view of storage, or a repeated literal.
bool has_value(UOp u);

}  // namespace tg::tensor_detail
