/// \file The data sets of the examples, as tensors.
#pragma once
#include <string>

#include "tinygrad/tensor/tensor.h"

namespace tg::nn::datasets {

/// Images (n, channels, height, width) and labels (n), all uint8: `auto [x_train, y_train, x_test, y_test] =
/// nn::datasets::mnist();`
struct Dataset {
  Tensor train_images, train_labels, test_images, test_labels;
};

/// Reads MNIST or Fashion-MNIST, (60000, 1, 28, 28) and (10000, 1, 28, 28), onto `device` (empty: the default). The
/// files are searched in $TINYGRAD_DATA, the user's cache, the source tree and the installation, else downloaded into
/// the cache; FormatError for files that differ, FileError when there are none.
Dataset mnist(const std::string& device = {}, bool fashion = false);
/// Reads CIFAR-10, (50000, 3, 32, 32) and (10000, 3, 32, 32), likewise.
Dataset cifar(const std::string& device = {});

}  // namespace tg::nn::datasets
