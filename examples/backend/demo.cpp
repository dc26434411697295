/// \file Trains a line on SIM: what a program does with a device that it brings along.
#include <cmath>
#include <cstdio>

#include "tinygrad/tinygrad.h"

int main() {
  using namespace tg;
  const Context on_sim{{"DEV", "SIM"}};
  std::printf("%s\n", Device::get().name().c_str());
  const Tensor x = Tensor::arange(16).cast(dtypes::float32) / 16.0, y = x * 3 + 1;
  Tensor slope = Tensor({0.f}).requires_grad_(), start = Tensor({0.f}).requires_grad_();
  nn::SGD sgd({slope, start}, {.lr = 0.5});
  auto step = jit([&](const Tensor& in, const Tensor& want) {
    sgd.zero_grad();
    Tensor loss = (in * slope + start - want).square().mean();
    loss.backward();
    sgd.step();
    return loss;
  });
  const nn::Training training;
  for (int i = 0; i < 200; i++) step(x.contiguous().realize(), y.contiguous().realize());
  const float a = slope.item<float>(), b = start.item<float>();
  std::printf("y = %.3f x + %.3f\n", static_cast<double>(a), static_cast<double>(b));
  return std::abs(a - 3) < 0.1f && std::abs(b - 1) < 0.1f ? 0 : 1;
}
