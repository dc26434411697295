/// \file Augmentation of batches of images (batch, channels, height, width) on their device. Random numbers are those
/// of Tensor::rand: manual_seed makes them reproducible. Everything is lazy and fuses with what follows.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::nn::transforms {

/// Bytes as numbers between 0 and 1, of the default float; floats as they are.
Tensor to_unit(const Tensor& images);
/// (images - mean) / std for each channel; bytes are brought to [0, 1] first. ShapeError unless there is one number a
/// channel, or one for all.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std);

struct CropOptions {
  int64_t padding = 0;  ///< added on all sides first
  PadOptions pad = {};  ///< how: zeros by default
};
/// A part of `height` x `width` of each image, at places drawn for each.
Tensor random_crop(const Tensor& images, int64_t height, int64_t width, const CropOptions& o = {});
/// The middle part.
Tensor center_crop(const Tensor& images, int64_t height, int64_t width);
/// Mirrors each image with probability p: left and right, or (vertical) top and bottom.
Tensor random_flip(const Tensor& images, double p = 0.5, bool vertical = false);

/// A rectangle of each image is replaced by that of another image of the batch, and the labels (batch, classes),
/// probabilities, are mixed by area. The part of the area that is replaced is uniform, before the rectangle is cut at
/// the edges.
std::pair<Tensor, Tensor> cutmix(const Tensor& images, const Tensor& labels);
/// Each image and its labels become a weighted mean with another's; the weight is uniform.
std::pair<Tensor, Tensor> mixup(const Tensor& images, const Tensor& labels);

}  // namespace tg::nn::transforms
