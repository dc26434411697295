/// \file Bounds for what nobody realizes: long pending expressions are computed unasked, so that neither nodes nor the
/// memory they hold on to grow without limit.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/allocator.h"
#include "tinygrad/uop/graph.h"

namespace tg::tensor_detail {

/// Nodes and MiB that were left when the live tensors were last looked at.
struct PendingRest {
  size_t nodes = 0;
  int64_t mib = 0;
};
extern PendingRest pending_rest;

/// Computes every live tensor whose pending expression has a good part of the nodes or of the memory. The expression
/// itself stays if a gradient through it may be asked for: if it contains a node a live tensor shows, or one that needs
/// a gradient. Never while a function is captured. Under a GraphScope.
void limit_pending_graph_now();
/// Does so when there are more nodes or more memory than the last time by PENDING_NODES or PENDING_MB; less often when
/// little can be freed.
inline void limit_pending_graph() {
  const size_t nodes = Graph::global().live_nodes(), max_nodes = static_cast<size_t>(env::PENDING_NODES.get());
  const int64_t mib = allocated_bytes() >> 20, max_mib = env::PENDING_MB.get();
  PendingRest& rest = pending_rest;
  rest.nodes = std::min(rest.nodes, nodes);
  rest.mib = std::min(rest.mib, mib);
  if ((nodes - rest.nodes >= std::max(max_nodes, rest.nodes / 2) && max_nodes > 0) ||
      (mib - rest.mib >= std::max(max_mib, rest.mib / 2) && max_mib > 0)) [[unlikely]]
    limit_pending_graph_now();
}

}  // namespace tg::tensor_detail
