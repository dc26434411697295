/// \file Data augmentation for batches of images (batch, channels, height, width) on their device. Random numbers are
/// those of Tensor::rand: manual_seed makes them reproducible. Everything is lazy and fuses with its consumers.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::nn::transforms {

/// Scales bytes to [0, 1], in the default float; floats are unchanged; so is the shape.
Tensor to_unit(const Tensor& images);
/// Computes (images - mean) / std for each channel, of the images' shape; bytes are scaled to [0, 1] first. ShapeError
/// unless there is one value per channel, or one for all; ValueError for a std that is not positive.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std);

struct CropOptions {
  int64_t padding = 0;  ///< added on all sides first
  PadOptions pad = {};  ///< how: zeros by default
};
/// Crops `height` x `width` of each image at random positions: (batch, channels, height, width), of the images' type.
/// ShapeError for a size that does not fit.
Tensor random_crop(const Tensor& images, int64_t height, int64_t width, const CropOptions& o = {});
/// Crops the centre: shape, type and ShapeError as random_crop.
Tensor center_crop(const Tensor& images, int64_t height, int64_t width);
/// Mirrors each image with probability p: horizontally, or (vertical) vertically. Shape and type are the images'.
/// ValueError unless 0 <= p <= 1, ShapeError for other than four axes.
Tensor random_flip(const Tensor& images, double p = 0.5, bool vertical = false);

/// Replaces a rectangle of each image by that of another image of the batch, and mixes the labels (batch, classes),
/// probabilities, by area. The replaced fraction of the area is uniform, before the rectangle is clipped at the edges.
/// Shapes and types are those of images and labels. ShapeError for labels of another shape.
std::pair<Tensor, Tensor> cutmix(const Tensor& images, const Tensor& labels);
/// Replaces each image and its labels by a weighted mean with another's; the weight is uniform. Shapes, types and
/// ShapeError as cutmix.
std::pair<Tensor, Tensor> mixup(const Tensor& images, const Tensor& labels);

}  // namespace tg::nn::transforms
