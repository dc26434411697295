/// \file Lesson 2: gradients are tensors, computed by rules over the same graph, to any order.
#include <iostream>
#include <stdexcept>

#include "tinygrad/tinygrad.h"

using tg::Tensor;

static void check(const Tensor& t, const std::vector<float>& expected, const char* what) {
  std::cout << what << " =\n" << t << "\n";
  if (t.to_vector<float>() != expected) throw std::runtime_error(what);
}

int main() {
  Tensor x = Tensor::eye(3);
  Tensor y = {{2.f, 0.f, -2.f}};
  x.requires_grad_(true);
  y.requires_grad_(true);

  // z = sum over j of (y @ x)_j. backward() leaves dz/dx in x.grad() and dz/dy in y.grad(), still lazy.
  const Tensor z = y.matmul(x).sum();
  z.backward();
  check(x.grad(), {2, 2, 2, 0, 0, 0, -2, -2, -2}, "dz/dx");  // every column is y
  check(y.grad(), {1, 1, 1}, "dz/dy");                       // the row sums of x

  // backward() accumulates into the gradient; zero_grad() clears it.
  y.matmul(x).sum().backward();
  check(y.grad(), {2, 2, 2}, "dz/dy, twice");
  y.zero_grad();

  // gradient() gives derivatives without storing them, so they can be differentiated again.
  const Tensor t = Tensor({1.f, 2.f, 3.f});
  const Tensor cube = (t * t * t).sum();
  const Tensor first = cube.gradient({t})[0];
  const Tensor second = first.sum().gradient({t})[0];
  check(first, {3, 12, 27}, "3 t^2");
  check(second, {6, 12, 18}, "6 t");
}
