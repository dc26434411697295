/// \file Pictures as tensors for models, and back.
#pragma once
#include <filesystem>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::app {

/// Reads a picture of any kind that io/picture.h decodes: (1, channels, height, width), uint8. FileError, FormatError.
Tensor load_picture(const std::filesystem::path& path, int64_t channels = 3);
/// Writes a picture as PNG or JPEG, by the name's ending: (channels, height, width) or (height, width), with any number
/// of axes of size 1 before; floats are values from 0 to 1. ValueError for another shape or ending.
void save_picture(const Tensor& picture, const std::filesystem::path& path);
/// Returns whether a tensor of this shape can be saved as a picture of at least 8 x 8 pixels.
bool is_picture(const Tensor& t);

/// Returns (batch, channels, height, width) as floats in another size: the mean of whole blocks where it shrinks by two
/// or more, then linear between pixels.
Tensor resized(const Tensor& picture, int64_t height, int64_t width);

/// How a picture becomes the input of a model.
struct Normalization {
  double scale = 1 / 255.0;            ///< pixels are multiplied by this first
  std::vector<double> mean = {};       ///< of each channel, or of all; none: 0
  std::vector<double> deviation = {};  ///< the same; none: 1
  bool bgr = false;                    ///< the channels are blue, green, red
};
/// Returns (pixels * scale - mean) / deviation as floats, of the picture's shape. ValueError for other than one number
/// or one for each channel.
Tensor normalized(const Tensor& picture, const Normalization& n);

}  // namespace tg::app
