/// \file Products and convolutions in the layouts of images, whose elements are rows of pixels of four numbers. A
/// device without images computes the same values from plain storage.
#include "tinygrad/tensor/ops/image.h"

#include <algorithm>
#include <numeric>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/target/device_traits.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops/conv.h"
#include "tinygrad/tensor/ops/product.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/multi.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr int64_t kNumbers = 4;  // of a pixel

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Returns `t` with zeros behind an axis, up to `size`.
Tensor filled(const Tensor& t, int axis, int64_t size) {
  Shape to(static_cast<size_t>(t.ndim()), SInt(-1));
  to[static_cast<size_t>(axis < 0 ? t.ndim() + axis : axis)] = size;
  return t.pad_to(to);
}
/// Stores a tensor as an image: an axis is padded to a multiple. Returns the elements it had before.
Tensor stored(const Tensor& t, int axis, int64_t multiple) {
  const int64_t n = t.shape(axis);
  Tensor image = filled(t, axis, rounded_up(n, multiple));
  image = env::FLOAT16 ? image.cast(dtypes::float16).contiguous().cast(t.dtype()) : image.contiguous();
  Shape to(static_cast<size_t>(t.ndim()), SInt(-1));
  to[static_cast<size_t>(axis < 0 ? t.ndim() + axis : axis)] = n;
  return image.shrink_to(to);
}
/// Returns the pixels that rows of images on the device of a tensor are multiples of; 1 where it has none.
int64_t pitch_of(const Tensor& t) {
  if (is_multi(t.uop())) return 1;
  const std::string& device = device_of(t.uop());
  return device.empty() ? 1 : std::max<int64_t>(1, device_traits(device).image_pitch);
}
bool is_stored_in_pixels(const Tensor& t) {
  const DType d = t.dtype();
  return (d == dtypes::float32 || d == dtypes::float16) && !t.shape().symbolic() && !is_multi(t.uop());
}
}  // namespace

bool image::are_wanted(const Tensor& x, const Tensor& w) {
  if (env::IMAGE.get() == 0 || !is_stored_in_pixels(x) || !is_stored_in_pixels(w)) return false;
  const std::string &device = device_of(x.uop()), &other = device_of(w.uop());
  if (device.empty() || device != other || x.numel() == 0 || w.numel() == 0) return false;
  if (env::IMAGE.get() == 1) {  // what it has is known from then on
    Device& d = Device::get(device);
    if (d.computes()) d.target();
  }
  return device_traits(device).image_pitch > 0;
}

Tensor Tensor::image_conv2d(const Tensor& weight, const Tensor& bias, const ConvOptions& o) const {
  OpScope s;
  const Shape xs = shape(), ws = weight.shape();
  TG_CHECK(ShapeError, xs.size() == 4 && ws.size() == 4, "[image_conv2d] got input ", xs, " and weight ", ws,
           ", expected four axes each");
  const int64_t g = o.groups, cin = ws[1].value(), cout = ws[0].value();
  TG_CHECK(ShapeError, g > 0 && g * cin == xs[1].value() && cout % g == 0, "[image_conv2d] got input ", xs,
           " and weight ", ws, " with ", g, " groups, expected ", g, " x ", cin,
           " input channels and output channels divisible by the groups");
  const int64_t bs = xs[0].value(), h = xs[2].value(), w = xs[3].value(), kh = ws[2].value(), kw = ws[3].value(),
                rcout = cout / g, pitch = pitch_of(*this);
  // Channels come in fours, except where each group has one and the groups come in fours.
  const bool fours = g % kNumbers == 0;
  const int64_t in4 = cin == 1 && fours ? 1 : rounded_up(cin, kNumbers),
                out4 = rcout == 1 && fours ? 1 : rounded_up(rcout, kNumbers), row = g * in4 / kNumbers;
  const DType wide = o.dtype.value_or(least_upper_dtype(least_upper_dtype(dtype(), weight.dtype()), dtypes::float32));
  Tensor x = filled(reshape(bs, g, cin, h, w), 2, in4).reshape(bs, g * in4, h, w);
  Tensor k = filled(filled(weight.reshape(g, rcout, cin, kh, kw), 1, out4), 2, in4).reshape(g * out4, in4, kh, kw);
  // Rows of pixels, channels innermost; for the weight four output channels innermost.
  x = stored(x.permute(0, 2, 3, 1), 2, pitch / std::gcd(row, pitch)).permute(0, 3, 1, 2).cast(wide);
  const int64_t taps = kh * in4 * kw, fourth = g * out4 / kNumbers;
  k = k.reshape(fourth, kNumbers, in4, kh, kw).permute(0, 3, 2, 4, 1).reshape(fourth, taps, kNumbers);
  k = stored(k, 1, pitch)
          .reshape(fourth, kh, in4, kw, kNumbers)
          .permute(0, 4, 2, 1, 3)
          .reshape(g * out4, in4, kh, kw)
          .cast(wide);
  ConvOptions plain = o;
  plain.dtype = wide;
  Tensor y = conv::direct(x, k, plain);
  const Shape ys = y.shape();
  y = y.reshape({bs, g, out4, ys[2].value(), ys[3].value()})
          .shrink_to({-1, -1, rcout, -1, -1})
          .reshape({bs, cout, ys[2].value(), ys[3].value()});
  if (bias.defined()) y = y + bias.reshape(1, -1, 1, 1);
  return s(y);
}

Tensor Tensor::image_dot(const Tensor& w, std::optional<DType> dtype) const {
  OpScope s;
  const Shape a = shape(), b = w.shape();
  TG_CHECK(ShapeError, !a.empty() && !b.empty(), "[image_dot] got shapes ", a, " and ", b,
           ", expected at least one axis each");
  TG_CHECK(ShapeError, a.back() == b[b.size() - std::min<size_t>(b.size(), 2)], "[image_dot] got shapes ", a, " and ",
           b, ", expected equal inner sizes");
  if (b.size() < 2 || a.size() < 2 || a.symbolic() || b.symbolic()) return s(plain_dot(*this, w, dtype));
  // Rows of both are rows of an image: pixels along the sum, and along the columns of the result.
  const int64_t k = rounded_up(b[b.size() - 2].value(), kNumbers), n = b.back().value(),
                row = kNumbers * pitch_of(*this);
  const Tensor x = stored(filled(*this, -1, k), -1, row);
  const Tensor y = stored(filled(filled(w, -2, k), -1, rounded_up(n, kNumbers)), -1, row);
  const Tensor r = plain_dot(x, y, dtype);
  Shape out(static_cast<size_t>(r.ndim()), SInt(-1));
  out.back() = n;
  return s(r.shrink_to(out));
}

}  // namespace tg
