/// \file Lesson 3: a module, an optimizer, a training loop: a network of two layers on batches of MNIST.
#include <iostream>
#include <stdexcept>

#include "tinygrad/tinygrad.h"

using tg::Tensor;
namespace nn = tg::nn;

// A module is a struct. TG_STATE lists its parameters; nothing else is required.
struct TwoLayers {
  nn::Linear hidden{784, 128};
  nn::Linear output{128, 10};
  Tensor operator()(const Tensor& images) const { return output(hidden(images.flatten(1).to_float() / 255).relu()); }
  TG_STATE(hidden, output)
};

int main() {
  Tensor::manual_seed(1);
  const auto [x_train, y_train, x_test, y_test] = nn::datasets::mnist();
  const TwoLayers model;
  for (const auto& [name, tensor] : nn::get_state_dict(model))
    std::cout << name << " " << tensor.shape() << "\n";  // hidden.weight (128, 784) ...

  nn::Adam optimizer(nn::get_parameters(model), {.lr = 0.003});
  std::vector<float> losses;
  for (int step = 0; step < 20; step++) {
    const nn::Training mode;  // until the end of the scope
    optimizer.zero_grad();
    const Tensor rows = Tensor::randint({128}, {.high = x_train.shape(0)});  // drawn on the device
    const Tensor loss = model(x_train[rows]).sparse_categorical_crossentropy(y_train[rows]);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
    std::cout << "step " << step << ": loss " << losses.back() << "\n";
  }

  const Tensor right = model(x_test).argmax(1) == y_test;
  std::cout << "test accuracy " << 100 * right.mean().item<float>() << "%\n";
  if (!(losses.back() < 0.5f * losses.front())) throw std::runtime_error("the loss did not fall");
}
