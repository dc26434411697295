/// \file Float64 results on the host, one element at a time and in the plainest form: the reference for benchmark rows.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/tg/models.h"

namespace tg::bench {

/// Returns values uniform in [-1, 1), the same in every run.
std::vector<float> random_floats(size_t n, uint64_t seed);
/// Returns `count` positions below n, the same in every run, including the first and the last.
std::vector<size_t> sample(size_t n, size_t count);

/// A sum in float64 with the sum of magnitudes, which scales the error allowed to float32.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double x) {
    value += x;
    magnitude += x < 0 ? -x : x;
  }
};
/// Throws WrongResult unless |got - expected| <= tolerance * magnitude.
void check_close(const char* what, size_t at, double got, const Sum& expected, double tolerance);

/// A convolution of images with square kernels; padding on every side.
struct Conv {
  int64_t n, in, out, h, w, kernel, stride = 1, padding = 0, groups = 1, dilation = 1;
  constexpr int64_t reach() const { return dilation * (kernel - 1) + 1; }
  constexpr int64_t out_h() const { return (h + 2 * padding - reach()) / stride + 1; }
  constexpr int64_t out_w() const { return (w + 2 * padding - reach()) / stride + 1; }
  /// Return elements of y = conv(x, weight), and of the gradients of x and of the weight for dy.
  Sum forward(std::span<const float> x, std::span<const float> weight, size_t at) const;
  Sum grad_input(std::span<const float> dy, std::span<const float> weight, size_t at) const;
  Sum grad_weight(std::span<const float> x, std::span<const float> dy, size_t at) const;
  double flops() const {
    return 2.0 * static_cast<double>(kernel * kernel * n * (in / groups) * out * out_h() * out_w());
  }
};

/// Sets a model's parameters from the host, so that no kernel runs before the measured ones. Weights have the variance
/// of their layer's initialization.
template <class M> void give_values(const M& model) {
  uint64_t seed = 1;
  for (const auto& [name, t] : nn::get_state_dict(model)) {
    const Shape shape = t.shape();
    if (!t.is_floating_point()) {
      t.replace(Tensor::from(std::vector<int64_t>{0}, shape));
      continue;
    }
    std::vector<float> v(static_cast<size_t>(shape.numel()),
                         name.ends_with("bias") || name.ends_with("mean") ? 0.f : 1.f);
    if (shape.size() > 1) {
      const double bound = 1 / std::sqrt(static_cast<double>(shape.numel() / shape[0]));
      v = random_floats(v.size(), seed++);
      for (float& x : v) x *= static_cast<float>(bound);
    }
    t.replace(Tensor::from(v, shape));
  }
}

/// Returns a GPT-2 block's output for the first `tokens` tokens, which do not depend on later ones.
class GptReference {
 public:
  explicit GptReference(const models::GptBlock& block);
  std::vector<double> forward(std::span<const float> x, int64_t tokens) const;
  /// Parameters are named as in the state dictionary.
  const std::vector<double>& parameter(const std::string& name) const;
  void change(const std::string& name, size_t at, double by);

 private:
  std::vector<double> layer_norm(const std::vector<double>& x, const std::string& name) const;
  std::vector<double> linear(const std::vector<double>& x, const std::string& name) const;
  int64_t channels_, heads_;
  std::vector<std::pair<std::string, std::vector<double>>> parameters_;
};

}  // namespace tg::bench
