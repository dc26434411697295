/// \file Memory that is prefetched, where the processor does not do so by itself.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// Makes CUSTOM "prefetch" (INDEX): the line of memory is read soon. It reads nothing itself and may point anywhere.
UOp prefetch(UOp storage, UOp index);

/// Adds prefetches for masked vector loads: processors follow streams of plain loads, but (measured on Zen 5) not of
/// masked ones, which then wait for memory each time. Each is for the same access some iterations of an enclosing loop
/// later, at least kAhead cycles away. Bytes that lanes read as words (render/blocks.h) are prefetched the same way.
/// For an expanded kernel.
UOp add_prefetches(UOp sink, const Renderer& renderer);

}  // namespace tg
