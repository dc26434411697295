/// \file Lesson 4: gradients, checked against differences, and a network that learns exclusive or.
#include <cmath>
#include <cstdio>
#include <functional>

#include "tinygrad/tinygrad.h"

using namespace tg;

/// Returns the largest difference between the gradient of f at x and central differences in float64.
static double gradient_error(const std::function<Tensor(const Tensor&)>& f, const std::vector<double>& at) {
  const auto value = [&](const std::vector<double>& v) { return f(Tensor(v)).item<double>(); };
  const Tensor x = Tensor(at).requires_grad_();
  const std::vector<double> gradient = f(x).gradient({x})[0].to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < at.size(); i++) {
    std::vector<double> above = at, below = at;
    above[i] += 1e-5;
    below[i] -= 1e-5;
    worst = std::max(worst, std::abs((value(above) - value(below)) / 2e-5 - gradient[i]));
  }
  return worst;
}

struct Mlp {
  nn::Linear hidden{2, 8}, out{8, 1};
  Tensor operator()(const Tensor& x) const { return out(hidden(x).tanh()); }
  TG_STATE(hidden, out)
};

int main() {
  // ---- 1. backward() puts the derivative of a loss into every leaf that wants one. ----
  const Tensor x = Tensor({1.f, 2.f, 3.f}).requires_grad_();
  const Tensor loss = (x * x).sum();
  loss.backward();
  std::printf("d(x.x)/dx:");
  for (const double g : x.grad().to_vector<double>()) std::printf(" %g", g);
  std::printf("\n");

  // ---- 2. Gradients are expressions: they can be differentiated again. ----
  const Tensor t = Tensor({2.0}).requires_grad_();
  const Tensor first = (t * t * t).sum().gradient({t})[0];
  std::printf("3t^2 = %g, 6t = %g\n", first.item<double>(), first.sum().gradient({t})[0].item<double>());

  // ---- 3. Gradient checking: analytic against (f(x + h) - f(x - h)) / 2h. ----
  const std::vector<double> at{0.3, -1.2, 2.5};
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> functions[] = {
      {"exp(sin x)", [](const Tensor& v) { return v.sin().exp().sum(); }},
      {"log softmax", [](const Tensor& v) { return v.log_softmax()(1); }},
      {"norm", [](const Tensor& v) { return v.square().sum().sqrt(); }},
      {"max * mean", [](const Tensor& v) { return v.max() * v.mean(); }}};
  for (const auto& [name, f] : functions)
    std::printf("%s: %s\n", name, gradient_error(f, at) < 1e-8 ? "within 1e-8 of differences" : "WRONG");

  // ---- 4. Exclusive or: no line separates it, a hidden layer does. ----
  Tensor::manual_seed(1);
  const Tensor in = Tensor({{0.f, 0.f}, {0.f, 1.f}, {1.f, 0.f}, {1.f, 1.f}}),
               want = Tensor({{0.f}, {1.f}, {1.f}, {0.f}});
  const Mlp model;
  nn::Adam optimizer(nn::get_parameters(model), {.lr = 0.05});
  const nn::Training mode;
  float last = 0;
  for (int step = 0; step < 200; step++) {
    optimizer.zero_grad();
    const Tensor error = (model(in) - want).square().mean().backward();
    optimizer.step();
    last = error.item<float>();
  }
  std::printf("loss after 200 steps below 0.01: %s\n", last < 0.01f ? "yes" : "no");
  std::printf("learned:");
  for (const float v : model(in).to_vector<float>()) std::printf(" %.0f", static_cast<double>(std::abs(v)));
  std::printf("\n");

  // ---- 5. detach() stops a gradient. ----
  const Tensor y = Tensor({3.0}).requires_grad_();
  std::printf("d(y * detach(y))/dy = %g\n", (y * y.detach()).sum().gradient({y})[0].item<double>());
}
