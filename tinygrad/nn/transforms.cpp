/// \file Data augmentation for batches of images.
#include "tinygrad/nn/transforms.h"

#include "tinygrad/base/error.h"

namespace tg::nn::transforms {
namespace {

void check_images(const char* op, const Tensor& t) {
  TG_CHECK(ShapeError, t.ndim() == 4, "[", op, "] got shape ", t.shape(),
           ", expected (batch, channels, height, width)");
}
/// Returns a random value for each image, (batch, 1, 1, 1), in [0, 1).
Tensor draw(const Tensor& images) {
  return Tensor::rand({images.shape(0), 1, 1, 1}, {.dtype = dtypes::float32, .device = images.device()});
}
/// Returns 0, 1, ... along one axis of images.
Tensor count(int64_t n, int axis, const std::string& device) {
  Shape s{1, 1, 1, 1};
  s[static_cast<size_t>(axis)] = n;
  return Tensor::arange(0, n, 1, {.dtype = dtypes::int32, .device = device}).reshape(s);
}
/// Returns random integers in [0, n], one for each image.
Tensor places(const Tensor& images, int64_t n) {
  return (draw(images) * (n + 1)).floor().cast(dtypes::int32).minimum(n);
}

/// Returns partner images and the mixed label rows; `kept` (batch): the weight of the first.
Tensor mixed_labels(const Tensor& labels, const Tensor& partner, const Tensor& kept) {
  const Tensor k = kept.reshape(-1, 1);
  return k * labels + (1 - k) * labels[partner];
}
void check_labels(const char* op, const Tensor& images, const Tensor& labels) {
  check_images(op, images);
  TG_CHECK(ShapeError, labels.ndim() == 2 && labels.shape(0) == images.shape(0), "[", op, "] got labels of shape ",
           labels.shape(), ", expected (", images.shape(0), ", classes): use one_hot()");
}

}  // namespace

Tensor to_unit(const Tensor& images) {
  return images.is_floating_point() ? images : images.cast(dtypes::default_float()) / 255.0;
}

Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std) {
  check_images("normalize", images);
  const auto channels = static_cast<size_t>(images.shape(1));
  const auto along_channels = [&](const std::vector<double>& v) {
    TG_CHECK(ShapeError, v.size() == 1 || v.size() == channels, "[normalize] got ", v.size(), " numbers for ", channels,
             " channels, expected one for each, or one");
    return Tensor::from(v, {.dtype = dtypes::float32, .device = images.device()})
        .reshape(1, -1, 1, 1)
        .requires_grad_(false);
  };
  for (double s : std) TG_CHECK(ValueError, s > 0, "[normalize] got std = ", s, ", expected a positive number");
  const Tensor x = to_unit(images);
  return ((x - along_channels(mean)) / along_channels(std)).cast(x.dtype());
}

Tensor random_crop(const Tensor& images, int64_t height, int64_t width, const CropOptions& o) {
  check_images("random_crop", images);
  const Tensor x = o.padding ? images.pad(Ints{o.padding, o.padding, o.padding, o.padding}, o.pad) : images;
  const int64_t h = x.shape(2), w = x.shape(3);
  TG_CHECK(ShapeError, height > 0 && width > 0 && height <= h && width <= w, "[random_crop] got a size of ", height,
           " x ", width, " for padded images of ", h, " x ", w);
  const std::string device = images.device();
  const Tensor rows = count(height, 2, device) + places(images, h - height),
               columns = count(width, 3, device) + places(images, w - width);
  return x(count(x.shape(0), 0, device), count(x.shape(1), 1, device), rows, columns);
}

Tensor center_crop(const Tensor& images, int64_t height, int64_t width) {
  check_images("center_crop", images);
  const int64_t h = images.shape(2), w = images.shape(3), top = (h - height) / 2, left = (w - width) / 2;
  TG_CHECK(ShapeError, height > 0 && width > 0 && height <= h && width <= w, "[center_crop] got a size of ", height,
           " x ", width, " for images of ", h, " x ", w);
  return images(Slice(), Slice(), Slice(top, top + height), Slice(left, left + width));
}

Tensor random_flip(const Tensor& images, double p, bool vertical) {
  check_images("random_flip", images);
  TG_CHECK(ValueError, p >= 0 && p <= 1, "[random_flip] got p = ", p, ", expected a probability");
  return (draw(images) < p).where(images.flip(vertical ? 2 : 3), images);
}

std::pair<Tensor, Tensor> cutmix(const Tensor& images, const Tensor& labels) {
  check_labels("cutmix", images, labels);
  const int64_t h = images.shape(2), w = images.shape(3);
  const std::string device = images.device();
  const Tensor partner = Tensor::randperm(images.shape(0), {.device = device}), side = draw(images).sqrt() / 2;
  // Half the side lengths around a centre drawn anywhere in the image.
  const Tensor dy = (count(h, 2, device).to_float() + 0.5 - draw(images) * h).abs(),
               dx = (count(w, 3, device).to_float() + 0.5 - draw(images) * w).abs();
  const Tensor inside = ((dy < side * h) & (dx < side * w)).contiguous();
  const Tensor kept = 1 - inside.to_float().mean({1, 2, 3});
  return {inside.where(images[partner], images), mixed_labels(labels, partner, kept)};
}

std::pair<Tensor, Tensor> mixup(const Tensor& images, const Tensor& labels) {
  check_labels("mixup", images, labels);
  const Tensor partner = Tensor::randperm(images.shape(0), {.device = images.device()}),
               kept = draw(images).contiguous(), x = to_unit(images);
  return {(kept * x + (1 - kept) * x[partner]).cast(x.dtype()), mixed_labels(labels, partner, kept)};
}

}  // namespace tg::nn::transforms
