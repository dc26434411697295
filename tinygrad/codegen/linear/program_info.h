/// \file What the engine must know of a program besides its instructions: work, name, parameters.
#pragma once
#include "tinygrad/target/program.h"

namespace tg {

/// Operations, bytes touched and bytes moved of a linear program; variables at their maxima.
Estimates estimate(const UOps& linear);
/// E_ (no reduce) or r_, then the sizes of the ranges: "r_64_32_48". Equal kernels get equal names.
std::string kernel_name(UOp ast);
/// Fills nbuffers, reads, writes, vars, thread_extent, the grid and shared memory of GPU targets from the program's
/// instructions. `ast` names the parameters of dead code, too.
void describe_parameters(Program& program, UOp ast);

}  // namespace tg
