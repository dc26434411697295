/// \file Forward passes of 3-D U-Net.
#include "models/unet3d.h"

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

NormedConv3d normed_conv(int64_t in, int64_t out, int64_t stride = 1) {
  return {nn::Conv2d(in, out, Ints{3, 3, 3}, {.stride = stride, .padding = 1, .bias = false}), nn::InstanceNorm(out)};
}

Tensor call(const NormedConv3d& c, const Tensor& x) { return c.second(c.first(x)).relu(); }

/// Returns the channels of the first or the last level.
int64_t outer(const UNet3DOptions& o, bool last) {
  TG_CHECK(ValueError, !o.filters.empty(), "[UNet3D] got no filters, expected the channels of each level");
  return last ? o.filters.back() : o.filters.front();
}

}  // namespace

UNet3DDownsample::UNet3DDownsample(int64_t in, int64_t out, int64_t stride)
    : conv1(normed_conv(in, out, stride)), conv2(normed_conv(out, out)) {}

Tensor UNet3DDownsample::operator()(const Tensor& x) const { return call(conv2, call(conv1, x)); }

UNet3DUpsample::UNet3DUpsample(int64_t in, int64_t out)
    : upsample_conv{nn::ConvTranspose2d(in, out, Ints{2, 2, 2}, {.stride = 2})},
      conv1(normed_conv(2 * out, out)),
      conv2(normed_conv(out, out)) {}

Tensor UNet3DUpsample::operator()(const Tensor& x, const Tensor& skip) const {
  return call(conv2, call(conv1, Tensor::cat({upsample_conv[0](x), skip}, 1)));
}

UNet3D::UNet3D(const UNet3DOptions& o)
    : input_block(o.in_channels, outer(o, false), 1),
      bottleneck(outer(o, true), outer(o, true)),
      output(outer(o, false), o.classes) {
  for (size_t i = 1; i < o.filters.size(); i++) downsample.emplace_back(o.filters[i - 1], o.filters[i]);
  upsample.emplace_back(outer(o, true), outer(o, true));
  for (size_t i = o.filters.size() - 1; i > 0; i--) upsample.emplace_back(o.filters[i], o.filters[i - 1]);
}

Tensor UNet3D::operator()(const Tensor& volumes) const {
  const int64_t multiple = int64_t{1} << upsample.size();
  TG_CHECK(ShapeError, volumes.ndim() == 5, "[UNet3D] got ", volumes.shape(),
           ", expected (batch, channels, depth, height, width)");
  for (int i = 2; i < 5; i++)
    TG_CHECK(ShapeError, volumes.shape(i) % multiple == 0, "[UNet3D] got ", volumes.shape(),
             ", expected depth, height and width to be multiples of ", multiple);
  Tensors levels{input_block(volumes)};
  for (const UNet3DDownsample& block : downsample) levels.push_back(block(levels.back()));
  Tensor x = bottleneck(levels.back());
  for (const UNet3DUpsample& block : upsample) {
    x = block(x, levels.back());
    levels.pop_back();
  }
  return output.conv(x);
}

}  // namespace tg::models
