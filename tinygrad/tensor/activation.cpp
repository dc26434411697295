/// \file Activation functions, composed of elementwise operations.
#include <cmath>
#include <numbers>

#include "tinygrad/tensor/impl.h"

namespace tg {
using namespace tensor_detail;

// Not maximum(0): the gradient at 0 is 0, not one half.
Tensor Tensor::relu() const {
  OpScope s;
  return s((*this > 0).where(*this, 0));
}
Tensor Tensor::relu6() const {
  OpScope s;
  return s(relu() - (*this - 6).relu());
}
Tensor Tensor::sigmoid() const {
  OpScope s;
  return s((1 + (*this * (-1 / std::numbers::ln2)).exp2()).reciprocal());
}
Tensor Tensor::tanh() const {
  OpScope s;
  return s(2.0 * (2.0 * *this).sigmoid() - 1.0);
}
Tensor Tensor::silu() const {
  OpScope s;
  return s(*this * sigmoid());
}
Tensor Tensor::quick_gelu() const {
  OpScope s;
  return s(*this * (*this * 1.702).sigmoid());
}
Tensor Tensor::gelu(bool tanh_approximation) const {
  OpScope s;
  if (!tanh_approximation) return s(0.5 * *this * (1.0 + (*this * (1 / std::numbers::sqrt2)).erf()));
  return s(0.5 * *this * (1 + (std::sqrt(2 / std::numbers::pi) * (*this + 0.044715 * pow(3))).tanh()));
}
Tensor Tensor::elu(double alpha) const {
  OpScope s;
  return s(relu() - alpha * (1 - exp()).relu());
}
Tensor Tensor::celu(double alpha) const {
  OpScope s;
  return s(maximum(0) + (alpha * ((*this / alpha).exp() - 1)).minimum(0));
}
Tensor Tensor::selu(double alpha, double gamma) const {
  OpScope s;
  return s(gamma * (*this >= 0).where(*this, alpha * (exp() - 1)));
}
Tensor Tensor::leaky_relu(double slope) const {
  OpScope s;
  return s((*this < 0).where(slope * *this, *this));
}
Tensor Tensor::hardtanh(double lo, double hi) const {
  OpScope s;
  return s(clamp(lo, hi));
}
Tensor Tensor::hardsigmoid(double alpha, double beta) const {
  OpScope s;
  Tensor line = alpha * *this + beta;
  return s(line.relu() - (line - 1).relu());
}
Tensor Tensor::hardswish() const {
  OpScope s;
  return s(*this * (*this + 3).relu6() * (1.0 / 6));
}
Tensor Tensor::softplus(double beta) const {
  OpScope s;
  return s((*this * beta).logaddexp(0.0) * (1 / beta));
}
Tensor Tensor::softsign() const {
  OpScope s;
  return s(*this / (1 + abs()));
}
Tensor Tensor::logsigmoid() const {
  OpScope s;
  return s(-(-*this).softplus());
}
Tensor Tensor::mish() const {
  OpScope s;
  return s(*this * softplus().tanh());
}

}  // namespace tg
