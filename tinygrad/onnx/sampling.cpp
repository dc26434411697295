/// \file Values of images between their elements.
#include "tinygrad/onnx/sampling.h"

#include <vector>

namespace tg::onnx {
namespace {

/// Weights of the four elements around a point that is `part` of an element after the second: cubic convolution.
Tensors cubic_weights(const Tensor& part) {
  constexpr double a = -0.75;
  const auto near = [&](const Tensor& t) { return ((t * (a + 2) - (a + 3)) * t * t) + 1; };
  const auto far = [&](const Tensor& t) { return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a; };
  return {far(part + 1), near(part), near(1 - part), far(2 - part)};
}

/// The elements that a coordinate's value is made of along one axis, and what each weighs.
struct Taps {
  Tensors index, weight;  ///< of the coordinate's type; a weight may be undefined: 1
};
Taps taps_of(const Tensor& x, SampleMode mode) {
  if (mode == SampleMode::kNearest) return {{x.round()}, {Tensor()}};
  const Tensor low = x.floor(), part = x - low;
  if (mode == SampleMode::kLinear) return {{low, low + 1}, {1 - part, part}};
  return {{low - 1, low, low + 1, low + 2}, cubic_weights(part)};
}

/// Moves an index into [0, n) by reflection at the ends.
Tensor reflected(const Tensor& i, int64_t n, bool corners) {
  if (n == 1) return i.zeros_like();
  const double low = corners ? 0 : -0.5, range = static_cast<double>(corners ? n - 1 : n);
  const Tensor turn = (i - low).mod(Tensor(2 * range));  // of there and back
  return (turn.gt(Tensor(range)).where(2 * range - turn, turn) + low)
      .clamp(Tensor(0.0), Tensor(static_cast<double>(n - 1)));
}

/// Puts indices into the image and takes the weight of those outside where they count as zeros.
void keep_inside(Taps& taps, int64_t n, Outside outside, bool corners) {
  for (size_t k = 0; k < taps.index.size(); k++) {
    Tensor& i = taps.index[k];
    Tensor& w = taps.weight[k];
    const Tensor last(static_cast<double>(n - 1));
    if (outside == Outside::kZeros) {
      const Tensor inside = i.ge(Tensor(0.0)).bitwise_and(i.le(last));
      w = inside.where(w.defined() ? w : Tensor(1.0), Tensor(0.0)).cast(i.dtype());
    }
    i = (outside == Outside::kReflect ? reflected(i, n, corners) : i.clamp(Tensor(0.0), last)).cast(dtypes::int64);
  }
}

}  // namespace

Tensor sample(const Tensor& image, const Tensors& at, SampleMode mode, Outside outside, bool corners) {
  const Shape s = image.shape();
  const size_t n = at.size();
  int64_t plane = 1;
  std::vector<Taps> taps;
  for (size_t i = 0; i < n; i++) {
    const int64_t size = s[2 + i].value();
    plane *= size;
    taps.push_back(taps_of(at[i], mode));
    keep_inside(taps.back(), size, outside, corners);
  }
  const Tensor rows = image.reshape(Shape{s[0], s[1], plane});
  const size_t each = taps[0].index.size();
  size_t combinations = 1;
  for (size_t i = 0; i < n; i++) combinations *= each;
  Tensor out;
  for (size_t k = 0; k < combinations; k++) {
    Tensor index, weight;
    for (size_t i = 0, rest = k; i < n; i++, rest /= each) {
      const Tensor& place = taps[i].index[rest % each];
      const Tensor& w = taps[i].weight[rest % each];
      index = index.defined() ? index * s[2 + i].value() + place : place;
      if (w.defined()) weight = weight.defined() ? weight * w : w;
    }
    Tensor v = rows.gather(2, index.expand(Shape{s[0], s[1], index.shape()[2]}));
    if (weight.defined()) v = v * weight;
    out = out.defined() ? out + v : v;
  }
  return out;
}

}  // namespace tg::onnx
