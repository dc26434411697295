/// \file Several devices: sharded tensors, copies between devices, and a network trained on two as on one.
#include <cmath>
#include <iostream>

#include "tinygrad/tinygrad.h"

using namespace tg;

// Devices of one kind are numbered; those of CPU share the processor, so this runs everywhere.
static const std::vector<std::string> kTwo{"CPU:0", "CPU:1"};

/// Returns the loss after some steps of a small network; with `several` each device has half of the samples and all of
/// the weights.
static float train(bool several) {
  Context training{{"TRAINING", 1}};
  Tensor::manual_seed(1);
  Tensor w1 = Tensor::glorot_uniform({2, 32}), w2 = Tensor::glorot_uniform({32, 1});
  const Tensor points = Tensor::uniform({64, 2}, {.low = -1, .high = 1}),
               want = points.square().sum({.axis = 1, .keepdim = true}).sqrt();
  Tensor x = points.realize(), y = want.realize();
  if (several) {
    x.shard_(kTwo, 0);
    y.shard_(kTwo, 0);
    w1.shard_(kTwo);
    w2.shard_(kTwo);
  }
  w1.requires_grad_();
  w2.requires_grad_();
  nn::Adam optimizer({w1, w2}, {.lr = 0.01});
  Tensor loss;
  for (int step = 0; step < 50; step++) {
    optimizer.zero_grad();
    loss = (x.matmul(w1).relu().matmul(w2) - y).square().mean();
    loss.backward();  // each device computes the gradients of its samples; all get the sums
    optimizer.step();
  }
  return loss.item<float>();
}

int main() {
  const Tensor x = Tensor::arange(8).reshape(2, 4).shard(kTwo, 1);
  std::cout << x.device() << ": each has a slice of " << x.shape() << " along axis " << *x.shard_axis() << "\n";
  std::cout << "elementwise and along other axes nothing moves: " << (x * 2).sum({.axis = 0}) << "\n";
  std::cout << "a sum over the sharded axis goes to all: " << x.sum({.axis = 1}) << "\n";
  std::cout << "gathered: " << x.to("CPU").device() << "\n";

  const float one = train(false), two = train(true);
  std::cout << "loss on one device " << one << ", on two " << two << "\n";
  return std::abs(one - two) < 1e-4 && one < 0.1 ? 0 : 1;
}
