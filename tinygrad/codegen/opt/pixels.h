/// \file Which buffers can be images, and which indices walk their pixels.
#pragma once
#include "tinygrad/target/target.h"
#include "tinygrad/uop/uop.h"

namespace tg {

inline constexpr int64_t kPixelNumbers = 4;

/// Whether an image of so many pixels can have rows of `width`.
bool is_image_width(int64_t width, int64_t pixels, const ImageLimits& limits);
/// Returns the widest image of so many pixels; 0: there is none.
int64_t widest_image(int64_t pixels, const ImageLimits& limits);
/// Whether a buffer of `elements` of type `d` can be an image: rows of whole pixels without gaps, a multiple of the
/// pitch where there are several. No other types than float32 and float16 can.
bool fits_image(DType d, int64_t elements, const ImageLimits& limits);

/// Whether an index moves from number to number of a pixel with the range `lane`, and by whole pixels with all others.
bool walks_pixel(UOp index, UOp lane);

}  // namespace tg
