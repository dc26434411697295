/// \file Memory that is asked for ahead of its use, where the processor does not do so by itself.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// CUSTOM "prefetch" (INDEX): a line of memory is wanted soon. It reads nothing and may point anywhere.
UOp prefetch(UOp storage, UOp index);
bool is_prefetch(UOp u);

/// Adds prefetches for masked vector loads: processors follow streams of plain loads, but (measured on Zen 5) not of
/// masked ones, which then wait for memory each time. Each is for the same place some iterations later of a loop
/// around, at least kAhead cycles away. For an expanded kernel.
UOp add_prefetches(UOp sink, const Renderer& renderer);

}  // namespace tg
