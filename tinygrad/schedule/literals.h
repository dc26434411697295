/// \file Reading literals that change from memory.
#pragma once
#include "tinygrad/schedule/normalize.h"

namespace tg {

/// Turns the literals that changed between graphs which are otherwise the same into inputs, once several were seen; the
/// key then holds for all of them. Returns false, and changes nothing, where there is none. For graphs that are not in
/// the cache.
bool literals_to_inputs(NormalGraph& g);

}  // namespace tg
