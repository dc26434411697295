/// \file Reading, writing, scaling and normalizing pictures.
#include "apps/tg/pictures.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/picture.h"

namespace tg::app {
namespace {

/// Returns (channels, height, width) without the axes of size 1 before; an undefined tensor where that is no picture.
Tensor plain(const Tensor& t) {
  Tensor p = t;
  while (p.ndim() > 3 && p.shape(0) == 1) p = p.squeeze(0);
  if (p.ndim() == 2) p = p.unsqueeze(0);
  return p.ndim() == 3 && (p.shape(0) == 1 || p.shape(0) == 3) ? p : Tensor();
}

/// A row of numbers as (1, channels, 1, 1), or one of all channels.
Tensor by_channel(const std::vector<double>& v, int64_t channels, const char* what) {
  TG_CHECK(ValueError, v.size() == 1 || static_cast<int64_t>(v.size()) == channels, "[", what, "] got ", v.size(),
           " numbers for ", channels, " channels");
  return Tensor::from(std::vector<float>(v.begin(), v.end())).reshape(1, static_cast<int64_t>(v.size()), 1, 1);
}

}  // namespace

Tensor load_picture(const std::filesystem::path& path, int64_t channels) {
  const io::MappedFile file = io::map_file(path, "picture");
  io::Image image = io::decode_image(file.bytes, channels, str("[picture] ", path.string()));
  return Tensor::from(image.pixels, Shape{1, image.height, image.width, channels}).permute({0, 3, 1, 2}).contiguous();
}

bool is_picture(const Tensor& t) {
  if (t.ndim() < 2 || (!t.is_floating_point() && t.dtype() != dtypes::uint8)) return false;
  const Tensor p = plain(t);
  return p.defined() && p.shape(1) >= 8 && p.shape(2) >= 8;
}

void save_picture(const Tensor& picture, const std::filesystem::path& path) {
  const Tensor p = plain(picture);
  TG_CHECK(ValueError, p.defined(), "[picture] got shape ", picture.shape(),
           ", expected (channels, height, width) of 1 or 3 channels");
  const Tensor bytes = p.dtype() == dtypes::uint8 ? p : (p.clip(0, 1) * 255).round().cast(dtypes::uint8);
  const io::Image image{p.shape(1), p.shape(2), p.shape(0), bytes.permute({1, 2, 0}).contiguous().to_vector<uint8_t>()};
  const std::string ending = path.extension().string();
  TG_CHECK(ValueError, ending == ".png" || ending == ".jpg" || ending == ".jpeg", "[picture] got ", path.string(),
           ", expected a name that ends with .png or .jpg");
  const std::vector<uint8_t> encoded = ending == ".png" ? io::encode_png(image) : io::encode_jpeg(image);
  io::write_file_atomic(path, encoded, "picture");
}

Tensor resized(const Tensor& picture, int64_t height, int64_t width) {
  Tensor x = picture.cast(dtypes::float32);
  const int64_t down = std::max<int64_t>(1, x.shape(2) / height), right = std::max<int64_t>(1, x.shape(3) / width);
  if (down > 1 || right > 1) x = x.avg_pool2d({.kernel_size = Ints{down, right}, .stride = Ints{down, right}});
  return x.shape(2) == height && x.shape(3) == width ? x : x.interpolate(Ints{height, width});
}

Tensor normalized(const Tensor& picture, const Normalization& n) {
  Tensor x = (n.bgr ? picture.flip(1) : picture).cast(dtypes::float32) * n.scale;
  if (!n.mean.empty()) x = x - by_channel(n.mean, x.shape(1), "mean");
  if (!n.deviation.empty()) x = x / by_channel(n.deviation, x.shape(1), "std");
  return x;
}

}  // namespace tg::app
