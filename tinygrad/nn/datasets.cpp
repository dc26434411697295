/// \file Data sets as tensors.
#include "tinygrad/nn/datasets.h"

#include "tinygrad/nn/dataset_files.h"

namespace tg::nn::datasets {
namespace {

Tensor images(const std::vector<uint8_t>& bytes, int64_t channels, int64_t size, const std::string& device) {
  const auto n = static_cast<int64_t>(bytes.size()) / (channels * size * size);
  return Tensor::from(std::span(bytes), Shape{n, channels, size, size}, {.device = device}).requires_grad_(false);
}
Tensor labels(const std::vector<uint8_t>& bytes, const std::string& device) {
  return Tensor::from(bytes, {.device = device}).requires_grad_(false);
}

template <class Bytes> Dataset tensors(const Bytes& b, int64_t channels, int64_t size, const std::string& device) {
  return {images(b.train_images, channels, size, device), labels(b.train_labels, device),
          images(b.test_images, channels, size, device), labels(b.test_labels, device)};
}

}  // namespace

Dataset mnist(const std::string& device, bool fashion) { return tensors(mnist_bytes(fashion), 1, 28, device); }
Dataset cifar(const std::string& device) { return tensors(cifar_bytes(), 3, 32, device); }

}  // namespace tg::nn::datasets
