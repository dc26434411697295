/// \file Rows of a padded operand one after the other: two output ranges become one long range for the lanes.
///
/// A window holds the rows of an image with zeros between them. Where the zeros behind one row serve as the zeros
/// before the next, taps move along the whole image as if it were one row: row * pitch + column + tap, for any number
/// of columns. Columns beyond the width are computed and not stored.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Returns the kernel with rows and columns of its output as one range of pitch * height, where a reduction reads an
/// operand that slides along both (codegen/scratch/window.h): for kernels whose panels are windows. The same
/// sink when there is no such operand.
UOp flatten_output_rows(UOp sink);

}  // namespace tg
