/// \file Data sets as tensors, and batches of them.
#include "tinygrad/nn/datasets.h"

#include <gtest/gtest.h>

#include "tinygrad/nn/dataset_files.h"

namespace tg::nn::datasets {
namespace {

TEST(Datasets, MnistHasTheBytesOfTheFiles) {
  const MnistBytes bytes = mnist_bytes();
  const auto [x_train, y_train, x_test, y_test] = mnist();
  EXPECT_EQ(x_train.shape(), (Shape{60000, 1, 28, 28}));
  EXPECT_EQ(y_train.shape(), (Shape{60000}));
  EXPECT_EQ(x_test.shape(), (Shape{10000, 1, 28, 28}));
  EXPECT_EQ(y_test.shape(), (Shape{10000}));
  for (const Tensor& t : {x_train, y_train, x_test, y_test}) EXPECT_EQ(t.dtype(), dtypes::uint8);
  EXPECT_EQ(y_test.to_vector<int>()[0], 7);
  EXPECT_EQ(x_test(9999).to_vector<uint8_t>(),
            std::vector<uint8_t>(bytes.test_images.end() - 784, bytes.test_images.end()));
}

TEST(Datasets, RowsAreGathered) {
  const MnistBytes bytes = mnist_bytes();
  const Dataset data = mnist();
  const Tensor rows = Tensor(std::vector<int32_t>{123, 9999, 0});
  std::vector<uint8_t> images, labels;
  for (size_t row : {123, 9999, 0}) {
    images.insert(images.end(), bytes.test_images.begin() + static_cast<ptrdiff_t>(row * 784),
                  bytes.test_images.begin() + static_cast<ptrdiff_t>(row * 784 + 784));
    labels.push_back(bytes.test_labels[row]);
  }
  EXPECT_EQ(data.test_images[rows].to_vector<uint8_t>(), images);
  EXPECT_EQ(data.test_labels[rows].to_vector<uint8_t>(), labels);
}

}  // namespace
}  // namespace tg::nn::datasets
