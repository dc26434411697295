/// \file Optimizers. Parameters and the optimizer's state get storage when it is made, and every step runs the same kernels.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Forgets the gradients of all parameters.
  void zero_grad() const;
  /// One step, computed at once. Throws ValueError outside of training mode, GradientError for a parameter without gradient.
  void step() { realize(schedule_step()); }
  /// Assigns one step lazily and returns what must be realized for it, together with whatever else the caller wants: realize(loss, ...).
  Tensors schedule_step();

  const Tensors& params() const { return params_; }    ///< what is trained
  const Tensors& buffers() const { return buffers_; }  ///< given, but with requires_grad(false): realized with each step, otherwise left alone
  /// The learning rate, a float32 number with storage: assign to it between steps.
  Tensor lr;

 protected:
  Optimizer(const char* name, const Tensors& params, double lr);
  /// Called first in each step.
  virtual void begin_step() {}
  /// What is to be subtracted from parameter i.
  virtual Tensor update(size_t i, const Tensor& param, const Tensor& grad) = 0;
  /// A float32 state tensor of zeros for each parameter, realized with every step.
  Tensors new_state();
  /// A state number, likewise.
  Tensor new_number(float value);
  /// Call at the end of the constructor: gives parameters and state their storage.
  void allocate() const;

 private:
  const char* name_;
  Tensors params_, buffers_, state_;
};

struct SgdOptions {
  double lr = 0.001, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
class SGD : public Optimizer {
 public:
  explicit SGD(const Tensors& params, const SgdOptions& o = {});

 private:
  Tensor update(size_t i, const Tensor& param, const Tensor& grad) override;
  SgdOptions o_;
  Tensors velocity_;
};

struct RmsPropOptions {
  double lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  ///< divides by the standard deviation of the gradient instead of its root mean square
};
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const Tensors& params, const RmsPropOptions& o = {});

 private:
  Tensor update(size_t i, const Tensor& param, const Tensor& grad) override;
  RmsPropOptions o_;
  Tensors square_, mean_, velocity_;
};

struct AdamOptions {
  double lr = 0.001, b1 = 0.9, b2 = 0.999, eps = 1e-8;
};
struct AdamWOptions {
  double lr = 0.001, b1 = 0.9, b2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
class AdamW : public Optimizer {
 public:
  explicit AdamW(const Tensors& params, const AdamWOptions& o = {}) : AdamW("AdamW", params, o) {}

 protected:
  AdamW(const char* name, const Tensors& params, const AdamWOptions& o);

 private:
  void begin_step() override;
  Tensor update(size_t i, const Tensor& param, const Tensor& grad) override;
  AdamWOptions o_;
  Tensor b1_power_, b2_power_;  // b1^t and b2^t: tensors, so that a captured step counts on
  Tensors m_, v_;
};
class Adam : public AdamW {
 public:
  explicit Adam(const Tensors& params, const AdamOptions& o = {}) : AdamW("Adam", params, {o.lr, o.b1, o.b2, o.eps, 0}) {}
};

}  // namespace tg::nn
