/// \file Sizes of images, and indices of pixels.
#include "tinygrad/codegen/opt/pixels.h"

#include <algorithm>

#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {

bool is_image_width(int64_t width, int64_t pixels, const ImageLimits& limits) {
  if (width <= 0 || width > limits.width || pixels % width) return false;
  const int64_t height = pixels / width;
  return height <= limits.height && (height == 1 || width % limits.pitch == 0);
}
int64_t widest_image(int64_t pixels, const ImageLimits& limits) {
  if (is_image_width(pixels, pixels, limits)) return pixels;
  for (int64_t w = limits.width / limits.pitch * limits.pitch; w > 0; w -= limits.pitch)
    if (is_image_width(w, pixels, limits)) return w;
  return 0;
}

bool fits_image(DType d, int64_t elements, const ImageLimits& limits) {
  if ((d != dtypes::float32 && d != dtypes::float16) || elements <= 0 || elements % kPixelNumbers) return false;
  return limits.width > 0 && widest_image(elements / kPixelNumbers, limits) > 0;
}

bool walks_pixel(UOp index, UOp lane) {
  const auto [gate, plain] = split_gate(index);
  const AffineIndex at(plain);
  if (at.coefficient(lane) != 1 || at.offset % kPixelNumbers || depends_on(gate, lane)) return false;
  return std::all_of(at.terms.begin(), at.terms.end(),
                     [&](const auto& t) { return t.first == lane || t.second % kPixelNumbers == 0; }) &&
         std::all_of(at.rest.begin(), at.rest.end(),
                     [&](UOp u) { return !depends_on(u, lane) && const_factor(u) % kPixelNumbers == 0; });
}

}  // namespace tg
