/// \file Products and convolutions in the layouts of texture memory, whose elements are rows of four channels. A device
/// without textures computes the same values from plain storage.
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops/conv.h"

namespace tg {
using namespace tensor_detail;

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
                rcout = cout / g;
  auto fours = [](int64_t n) { return (n + 3) / 4 * 4; };
  // Channels come in fours, except where each group has one and the groups come in fours.
  const int64_t in4 = cin == 1 && g % 4 == 0 ? 1 : fours(cin), out4 = rcout == 1 && g % 4 == 0 ? 1 : fours(rcout);
  Tensor x = reshape(bs, g, cin, h, w).pad_to({-1, -1, in4, -1, -1}).reshape(bs, g * in4, h, w);
  Tensor k = weight.reshape(g, rcout, cin, kh, kw).pad_to({-1, out4, in4, -1, -1}).reshape(g * out4, in4, kh, kw);
  // Rows of pixels, channels innermost; for the weight four output channels innermost.
  x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2);
  if (out4 * g % 4 == 0)
    k = k.reshape(g * out4 / 4, 4, in4, kh, kw)
            .permute(0, 3, 2, 4, 1)
            .contiguous()
            .permute(0, 4, 2, 1, 3)
            .reshape(g * out4, in4, kh, kw);
  ConvOptions plain = o;
  plain.dtype = o.dtype.value_or(least_upper_dtype(least_upper_dtype(dtype(), weight.dtype()), dtypes::float32));
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
  // One matrix times many rows is a convolution with 1x1 kernels; batches of matrices have no such form.
  if (b.size() != 2 || a.size() < 2) return s(dot(w, dtype));
  const int64_t k = b[0].value(), n = b[1].value();
  Tensor rows = reshape(-1, k).transpose().reshape(1, k, -1, 1);
  Tensor y = rows.image_conv2d(w.transpose().reshape(n, k, 1, 1), {}, {.dtype = dtype});
  Shape out = a;
  out.back() = n;
  return s(y.reshape(n, -1).transpose().reshape(out));
}

}  // namespace tg
