/// \file Training utilities around an optimizer: clipping and accumulation of gradients, averages of weights, mixed
/// precision, gradient checks.
#pragma once
#include <functional>

#include "tinygrad/nn/optim.h"

namespace tg::nn {

/// Scales all gradients of `params` so that their joint norm is at most `max_norm`; `p`: which norm, infinity too.
/// Returns the previous norm, lazily: a scalar, float32 or the gradients' wider type. Parameters without gradient are
/// skipped; GradientError when none has one, ValueError for numbers that are not positive.
Tensor clip_grad_norm(const Tensors& params, double max_norm, double p = 2);
/// Clamps every element of the gradients to [-limit, limit]. ValueError for a negative one, GradientError when no
/// parameter has a gradient.
void clip_grad_value(const Tensors& params, double limit);

/// Steps once every `n` losses, on the mean of their gradients: `if (acc.backward(loss)) schedule.step();`.
class GradAccumulator {
 public:
  GradAccumulator(AnyOptimizer& optimizer, const Tensors& params, int64_t n);
  GradAccumulator(Optimizer& optimizer, int64_t n) : GradAccumulator(optimizer, optimizer.params(), n) {}
  /// Adds the gradients of loss / n, computed at once, and steps (true) with every n-th loss, which clears the
  /// gradients. In a captured function: JitError unless it does all losses of a step.
  /// GradientError as Tensor::backward.
  bool backward(const Tensor& loss);

 private:
  AnyOptimizer& optimizer_;
  Tensors params_;
  int64_t n_, count_ = 0;
};

/// A moving average of parameters: average = decay * average + (1 - decay) * parameter. Non-float tensors are copied.
class Ema {
 public:
  explicit Ema(const Tensors& params, double decay = 0.999);
  /// Call after each step.
  void update() const;
  /// Swaps averages and parameters: call once before and once after an evaluation.
  void swap() const;
  /// The averages, each of the shape and type of its parameter.
  const Tensors& averages() const { return averages_; }

 private:
  Tensors params_, averages_;
  double decay_;
};

struct LossScalerOptions {
  double scale = 65536;
  double growth = 2, backoff = 0.5;  ///< after `interval` good steps in a row; after a bad one
  int64_t interval = 2000;
};
/// Keeps small half-precision gradients from underflowing: the loss is multiplied by a scale that grows as long as
/// gradients stay finite.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& o = {});
  /// Returns the scaled loss to call backward() on: shape and type of the loss.
  Tensor scale(const Tensor& loss) const;
  /// Divides the gradients by the scale, for clipping before step(). ValueError for a second time in a step,
  /// GradientError when no parameter has a gradient.
  void unscale(const Tensors& params);
  /// Steps the optimizer if all gradients are finite (true), else skips the step and reduces the scale.
  /// GradientError when no parameter has a gradient.
  bool step(AnyOptimizer& optimizer, const Tensors& params);
  bool step(Optimizer& optimizer) { return step(optimizer, optimizer.params()); }
  double scale() const { return value_; }

 private:
  void set(double value);
  LossScalerOptions o_;
  Tensor scale_;
  double value_;
  int64_t good_ = 0;
  bool unscaled_ = false;
};

/// float32 copies of half-precision parameters for the optimizer: `MasterWeights w(get_parameters(model)); Adam
/// adam(w.masters()); ... loss.backward(); w.take_gradients(); adam.step(); w.update();`
class MasterWeights {
 public:
  explicit MasterWeights(const Tensors& params);
  /// What the optimizer trains: float32, of the parameters' shapes.
  const Tensors& masters() const { return masters_; }
  /// Moves the gradients of the parameters to the masters. GradientError when none has one.
  void take_gradients() const;
  /// Writes the masters' values into the parameters.
  void update() const;

 private:
  Tensors params_, masters_;
};
/// Casts the trainable float tensors among `params` to type `d`; statistics (requires_grad(false)) keep theirs.
/// DTypeError unless d is a float type.
void cast_parameters(const Tensors& params, DType d);

/// Returns d f(x)_i / d x_j as (elements of f(x), elements of x), by backpropagation.
Tensor jacobian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);
/// Returns the same shape, float64, by central differences of width 2 eps. ValueError unless eps is positive.
Tensor numerical_jacobian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, double eps = 1e-3);
struct GradcheckOptions {
  double eps = 1e-3, atol = 1e-3, rtol = 1e-3;
};
/// Returns whether both agree. x float64 allows much smaller tolerances. DTypeError for x of integers, ValueError as
/// numerical_jacobian.
bool gradcheck(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const GradcheckOptions& o = {});

}  // namespace tg::nn
