/// \file The order of instructions: from the graph of a program to a list with properly nested loops.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Lists everything `sink` depends on, sources before users, every loop as RANGE ... END around exactly what depends on
/// it; the SINK itself is left out. Nodes that do not depend on a loop come before it. Within a loop nodes come right
/// before their first use, in the order of the effects, so that few values are alive at a time. Literals and parameters
/// come first. Deterministic. InternalError when loops cannot be nested.
UOps linearize(UOp sink);

}  // namespace tg
