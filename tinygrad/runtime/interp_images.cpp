/// \file The interpreter's reads and writes of pixels.
#include <cstring>

#include "tinygrad/runtime/interp.h"

namespace tg {
namespace {
constexpr size_t kAlign = 16;
}

/// Returns which pixel of all rows a thread means; -1 outside of the image.
int64_t Interpreter::pixel_of(const Pixel& p, const Warp& w, size_t thread) const {
  const auto coordinate = [&](size_t place, DType d) {
    const ConstValue v = load_const(w.frame + place * w.n + thread * static_cast<size_t>(d.itemsize()), d);
    return static_cast<int64_t>(v.i);
  };
  const int64_t y = coordinate(p.y, p.row_type), x = coordinate(p.x, p.column_type);
  return y < 0 || y >= p.size.height || x < 0 || x >= p.size.width ? -1 : y * p.size.width + x;
}

void Interpreter::read_pixels(const Step& s, const Warp& w, void* const* buffers) const {
  const Pixel& p = pixels_[static_cast<size_t>(s.base)];
  const auto* memory = static_cast<const unsigned char*>(buffers[p.slot]);
  for (size_t t = 0; t < w.n; t++) {
    const bool on = !s.gated || w.frame[p.gate * w.n + t];
    const int64_t at = on ? pixel_of(p, w, t) : -1;
    for (size_t i = 0; i < 4; i++) {
      unsigned char* out = w.frame + (s.out + i * kAlign) * w.n + t * s.item;
      float v = 0;  // outside
      if (!on) std::memcpy(&v, w.frame + p.values[0] * w.n + t * s.item, sizeof v);
      else if (at >= 0) {
        const unsigned char* from = memory + (static_cast<size_t>(at) * 4 + i) * static_cast<size_t>(p.size.itemsize);
        uint16_t half = 0;
        if (p.size.itemsize == 4) std::memcpy(&v, from, sizeof v);
        else {
          std::memcpy(&half, from, sizeof half);
          v = half_to_float(half);
        }
      }
      std::memcpy(out, &v, sizeof v);
    }
  }
}

void Interpreter::write_pixels(const Step& s, const Warp& w, void* const* buffers) const {
  const Pixel& p = pixels_[static_cast<size_t>(s.base)];
  auto* memory = static_cast<unsigned char*>(buffers[p.slot]);
  for (size_t t = 0; t < w.n; t++) {
    if (s.gated && !w.frame[p.gate * w.n + t]) continue;
    const int64_t at = pixel_of(p, w, t);
    if (at < 0)
      throw InternalError(str("[interp] ", program_->name, ": a pixel is written outside of an image of ", p.size.width,
                              " x ", p.size.height, ", at ", s.u));
    for (size_t i = 0; i < 4; i++) {
      unsigned char* to = memory + (static_cast<size_t>(at) * 4 + i) * static_cast<size_t>(p.size.itemsize);
      float v;
      std::memcpy(&v, w.frame + p.values[i] * w.n + t * s.item, sizeof v);
      const uint16_t half = float_to_half(v);
      if (p.size.itemsize == 4) std::memcpy(to, &v, sizeof v);
      else std::memcpy(to, &half, sizeof half);
    }
  }
}

}  // namespace tg
