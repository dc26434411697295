/// \file How graphs read: expressions, trees, linear programs, dot. Used by DEBUG=5 and 6, by error messages and by
/// people.
#pragma once
#include <span>
#include <string>

#include "tinygrad/uop/uop.h"

namespace tg {

/// Infix, e.g. `p0[r0 * 4 + r1] + 1`. Ranges are r<id>, variables their names, parameters p<slot>, buffers b<slot>; a
/// common subexpression is spelled at each use, beyond 4096 characters as %<id>.
std::string render_expr(UOp u);
/// Python's spelling, every operation in parentheses that its neighbours do not make needless: `((a//2)+r0*4)`. Of the
/// forms eval() understands; values without one are written like calls.
std::string render_python(UOp u);
/// One node a line, users above sources, indented by depth. A node with several users carries `%N =` where it is
/// spelled, `%N` elsewhere; N counts in order of appearance.
std::string print_tree(UOp root);
/// One instruction a line, `%N = OP dtype argument (%sources)`, indented by loop.
std::string print_linear(std::span<const UOp> program);
/// A Graphviz digraph.
std::string to_dot(UOp root);

}  // namespace tg
