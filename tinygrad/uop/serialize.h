/// \file Graphs as bytes. The structure is written: nodes are built again when it is read.
#pragma once
#include "tinygrad/base/binary.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// All that the roots depend on, each node once; an empty root stays empty. ValueError for what belongs to this
/// process: BUFFERs, and calls with a gradient of the user's own.
void write_graph(ByteWriter& w, const UOps& roots);
/// A hash of the names behind the numbers that are written (operations, kinds of arguments, axes and optimisations):
/// libraries with another list of operations read the bytes as something else.
uint32_t graph_format();
/// The roots, in the thread's current graph. FormatError for bytes that are no graph; what nodes mean is for the caller
/// to verify().
UOps read_graph(ByteReader& r);

}  // namespace tg
