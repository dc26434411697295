/// \file Buffers as images: groups of four adjacent elements become pixels, see docs/opencl.md.
#pragma once
#include "tinygrad/target/target.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// Whether a buffer of `elements` of type `d` can be an image: rows of whole pixels without gaps, a multiple of the
/// pitch where there are several. No other types than float32 and float16 can.
bool fits_image(DType d, int64_t elements, const ImageLimits& limits);

/// Whether an index moves from number to number of a pixel with the range `lane`, and by whole pixels with all others.
bool walks_pixel(UOp index, UOp lane);

/// Rewrites an expanded kernel for a target with images. A parameter becomes an image where it is only read or only
/// written and where all accesses come as groups of the four numbers of a pixel. Of the possible widths it gets the one
/// with which most gates of loads are needless, as pixels outside of an image are 0.
UOp use_images(UOp sink, const ImageLimits& limits);

}  // namespace tg
