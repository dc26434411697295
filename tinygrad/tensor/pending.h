/// \file Bounds for what nobody realizes: long pending expressions are computed unasked, so that neither nodes nor the
/// memory they hold on to grow.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/allocator.h"
#include "tinygrad/uop/graph.h"

namespace tg::tensor_detail {

/// Nodes and MiB that were left by the last look.
struct PendingRest {
  size_t nodes = 0;
  int64_t mib = 0;
};
extern PendingRest pending_rest;

/// Looks, when there are more nodes or more memory than at the last look by PENDING_NODES or PENDING_MB: every live
/// tensor whose pending expression has a good part of them is computed. The expression itself stays if a gradient
/// through it may be asked for: if it contains a node a live tensor shows, or one that needs a gradient. Never while a
/// function is captured. Under a GraphScope.
void limit_pending_graph_now();
inline void limit_pending_graph() {
  // The more has to stay, the rarer looks are.
  const size_t nodes = Graph::global().live_nodes(), most = static_cast<size_t>(env::PENDING_NODES.get());
  const int64_t mib = allocated_bytes() >> 20, most_mib = env::PENDING_MB.get();
  PendingRest& rest = pending_rest;
  rest.nodes = std::min(rest.nodes, nodes);
  rest.mib = std::min(rest.mib, mib);
  if ((nodes - rest.nodes >= std::max(most, rest.nodes / 2) && most > 0) ||
      (mib - rest.mib >= std::max(most_mib, rest.mib / 2) && most_mib > 0)) [[unlikely]]
    limit_pending_graph_now();
}

}  // namespace tg::tensor_detail
