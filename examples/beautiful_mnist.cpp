/// \file Lesson 4: a convolutional network that passes 98 % on MNIST within 100 steps: `example_beautiful_mnist 100`.
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "tinygrad/tinygrad.h"

using tg::Tensor;
namespace nn = tg::nn;

struct Model {
  nn::Conv2d conv1{1, 32, 5}, conv2{32, 32, 5};
  nn::BatchNorm bn1{32};
  nn::Conv2d conv3{32, 64, 3}, conv4{64, 64, 3};
  nn::BatchNorm bn2{64};
  nn::Linear fc{576, 10};

  Tensor operator()(const Tensor& images) const {
    Tensor x = bn1(conv2(conv1(images).relu()).relu()).max_pool2d();  // (batch, 32, 10, 10)
    x = bn2(conv4(conv3(x).relu()).relu()).max_pool2d();              // (batch, 64, 3, 3)
    return fc(x.flatten(1));
  }
  TG_STATE(conv1, conv2, bn1, conv3, conv4, bn2, fc)
};

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3;
  const int64_t batch = steps < 10 ? 32 : 512;
  Tensor::manual_seed(42);
  const auto [x_train, y_train, x_test, y_test] = nn::datasets::mnist();
  const Model model;
  nn::Adam optimizer(nn::get_parameters(model));

  float first = 0, loss = 0;
  for (int step = 0; step < steps; step++) {
    const nn::Training mode;  // batch norms use the statistics of the batch
    optimizer.zero_grad();
    const Tensor rows = Tensor::randint({batch}, {.high = x_train.shape(0)});
    const Tensor batch_loss = model(x_train[rows]).sparse_categorical_crossentropy(y_train[rows]);
    batch_loss.backward();
    optimizer.step();
    loss = batch_loss.item<float>();
    if (step == 0) first = loss;
    std::cout << "step " << step << ": loss " << loss << std::endl;
  }
  if (steps > 1 && !(loss < first)) throw std::runtime_error("the loss did not fall");

  // Out of training mode, batch norms use the statistics gathered on the way.
  if (steps < 10) return 0;
  double right = 0;
  for (int64_t begin = 0; begin < x_test.shape(0); begin += 1000) {
    const Tensor rows = (Tensor::arange(1000) + begin).realize();
    right += (model(x_test[rows]).argmax(1) == y_test[rows]).sum().item<double>();
  }
  std::cout << "test accuracy " << 100 * right / static_cast<double>(x_test.shape(0)) << "%\n";
}
