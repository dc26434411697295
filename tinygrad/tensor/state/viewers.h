/// \file Finding live tensors from nodes, upwards through the users of nodes: the time depends on how many users there
/// are, not on how many other tensors live. Under a GraphScope.
#pragma once
#include <span>
#include <unordered_map>

#include "tinygrad/tensor/state/effects.h"

namespace tg::tensor_detail {

/// Returns, in order of creation, the live tensors that have one of the nodes below views, shards and values that have
/// been computed: all whose current_view shows one of them, and perhaps others. `through`: the ops that count as views
/// of their first source.
Impls viewers_of(std::span<const UOp> nodes, OpSet through = kViewOps);
/// Returns, in order of creation, the live tensors whose expression reads one of the nodes, as far as it has not been
/// computed, or that have been computed into what does; and perhaps others.
Impls readers_above(std::span<const UOp> nodes);

/// The nodes that live tensors refer to, themselves and below their views, except tensors that want no gradient.
class ShownNodes {
 public:
  bool contains(UOp u);

 private:
  std::unordered_map<UOp, bool> known_;
};

}  // namespace tg::tensor_detail
