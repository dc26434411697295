/// \file Buffers as images: groups of four adjacent elements become pixels, see docs/opencl.md.
#pragma once
#include "tinygrad/target/target.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// Rewrites an expanded kernel for a target with images. A parameter becomes an image where it is only read or only
/// written and where all accesses come as groups of the four numbers of a pixel. Of the possible widths it gets the one
/// with which most gates of loads are needless, as pixels outside of an image are 0.
UOp use_images(UOp sink, const ImageLimits& limits);

}  // namespace tg
