/// \file Data augmentation for batches of images (batch, channels, height, width) on their device. Random numbers are
/// those of Tensor::rand: manual_seed makes them reproducible. Everything is lazy and fuses with its consumers.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::nn::transforms {

/// Scales bytes to [0, 1], in the default float; floats are unchanged.
Tensor to_unit(const Tensor& images);
/// Computes (images - mean) / std for each channel; bytes are scaled to [0, 1] first. ShapeError unless there is one
/// value per channel, or one for all.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std);

struct CropOptions {
  int64_t padding = 0;  ///< added on all sides first
  PadOptions pad = {};  ///< how: zeros by default
};
/// Crops `height` x `width` of each image at random positions.
Tensor random_crop(const Tensor& images, int64_t height, int64_t width, const CropOptions& o = {});
/// Crops the centre.
Tensor center_crop(const Tensor& images, int64_t height, int64_t width);
/// Mirrors each image with probability p: horizontally, or (vertical) vertically.
Tensor random_flip(const Tensor& images, double p = 0.5, bool vertical = false);

/// Replaces a rectangle of each image by that of another image of the batch, and mixes the labels (batch, classes),
/// probabilities, by area. The replaced fraction of the area is uniform, before the rectangle is clipped at the edges.
std::pair<Tensor, Tensor> cutmix(const Tensor& images, const Tensor& labels);
/// Replaces each image and its labels by a weighted mean with another's; the weight is uniform.
std::pair<Tensor, Tensor> mixup(const Tensor& images, const Tensor& labels);

}  // namespace tg::nn::transforms
