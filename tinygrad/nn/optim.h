/// \file Optimizers. Parameters and optimizer state get storage at construction, and every step runs the same kernels.
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

/// The interface of optimizers and of groups of them.
class AnyOptimizer {
 public:
  virtual ~AnyOptimizer() = default;
  /// Clears the gradients of all parameters.
  virtual void zero_grad() const = 0;
  /// Assigns one step lazily and returns the tensors to realize for it, together with whatever else the caller wants:
  /// realize(loss, ...). Their shapes and types are those of parameters and state. Throws ValueError outside of
  /// training mode, GradientError for a parameter without gradient.
  virtual Tensors schedule_step() = 0;
  /// Takes one step, computed at once. Throws ValueError outside of training mode, GradientError for a parameter
  /// without gradient.
  void step() { realize(schedule_step()); }
};

class Optimizer : public AnyOptimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// As AnyOptimizer's: forgets the gradients; what one step computes, unrealized, of the shapes and types of
  /// parameters and state. Throws ValueError outside of training mode, GradientError for a parameter without gradient.
  void zero_grad() const override;
  Tensors schedule_step() override;

  const Tensors& params() const { return params_; }  ///< what is trained, each of its shape and type
  /// Returns tensors that were given, of any shape and type, with requires_grad(false): realized with each step,
  /// otherwise left alone.
  const Tensors& buffers() const { return buffers_; }
  /// Momenta and averages (of the parameters' shapes and types) and counters (scalars), in a fixed order: save and
  /// restore them with the model to resume training.
  const Tensors& state() const { return state_; }
  /// A name of state and where it begins in state(): for each parameter one tensor ("m"), or one for all ("b1_t").
  struct StateSlot {
    std::string name;
    size_t first;
    bool per_parameter;
  };
  const std::vector<StateSlot>& state_slots() const { return slots_; }
  bool fused() const { return fused_; }
  /// The learning rate, a float32 scalar with storage: assign to it between steps.
  Tensor lr;

 protected:
  /// `fused` (default: FUSE_OPTIM): all parameters are updated as one flat tensor, in few kernels. They must be of one
  /// type and device.
  Optimizer(const char* name, const Tensors& params, double lr, std::optional<bool> fused = {});
  /// Returns the update to subtract from each parameter. Fused: one tensor for all.
  virtual Tensors updates(const Tensors& params, const Tensors& grads) = 0;
  /// Creates a float32 state tensor of zeros for each parameter, realized with every step. Checkpoints have it under
  /// its name.
  Tensors new_state(std::string name = "state");
  /// Creates a scalar state tensor, likewise.
  Tensor new_number(float value, std::string name = "number");
  /// Called at the end of the constructor: gives parameters and state their storage.
  void allocate() const;

 private:
  const char* name_;
  bool fused_;
  void add_slot(std::string name, bool per_parameter);
  Tensors params_, buffers_, state_;
  std::vector<StateSlot> slots_;
};

/// Several optimizers that step together: `OptimizerGroup both{adam, sgd};`. They must outlive the group.
class OptimizerGroup : public AnyOptimizer {
 public:
  OptimizerGroup(std::initializer_list<std::reference_wrapper<AnyOptimizer>> optimizers);
  /// As those of each, together: the tensors of all, with their shapes and types.
  void zero_grad() const override;
  Tensors schedule_step() override;
  size_t size() const { return optimizers_.size(); }
  AnyOptimizer& operator[](size_t i) const { return optimizers_.at(i); }

 private:
  std::vector<std::reference_wrapper<AnyOptimizer>> optimizers_;
};

// ---- momentum: SGD, LARS, Muon ----

struct LarsOptions {
  double lr = 0.001, momentum = 0.9, weight_decay = 1e-4;
  bool nesterov = false;
  bool classic = true;                       ///< the learning rate goes into the momentum instead of into the update
  double trust = 0.001;                      ///< coefficient of the layer-wise rate; 0: none
  bool decay_first = true;                   ///< weight decay is added to the gradient, else to the update
  int ns_steps = 0;                          ///< Newton-Schulz iterations on the update
  std::vector<double> ns_coefficients = {};  ///< none: no iterations
  std::optional<bool> fused = {};
};
/// Computes one step of these rules: updates `momentum` (one tensor per parameter; unused when o.momentum is 0) and
/// returns the updates to subtract, of the parameters' shapes and types.
Tensors lars_updates(const Tensors& params, const Tensors& grads, const Tensors& momentum, const Tensor& lr,
                     const LarsOptions& o);

/// Layer-wise adaptive rate scaling: https://arxiv.org/abs/1708.03888
class LARS : public Optimizer {
 public:
  explicit LARS(const Tensors& params, const LarsOptions& o = {}) : LARS("LARS", params, o) {}

 protected:
  LARS(const char* name, const Tensors& params, const LarsOptions& o);

 private:
  Tensors updates(const Tensors& params, const Tensors& grads) override;
  LarsOptions o_;
  Tensors velocity_;
};

struct SgdOptions {
  double lr = 0.001, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  bool classic = false;  ///< the learning rate goes into the momentum: a later change of it acts on new gradients only
  std::optional<bool> fused = {};
};
class SGD : public LARS {
 public:
  /// Trains `params`. Throws ValueError for options out of their range and for no parameters, DTypeError for parameters
  /// that are no floats.
  explicit SGD(const Tensors& params, const SgdOptions& o = {});
};

struct MuonOptions {
  double lr = 0.001, momentum = 0.95, weight_decay = 0.1;
  int ns_steps = 5;
  std::vector<double> ns_coefficients = {3.4445, -4.775, 2.0315};
  bool nesterov = true;
};
/// Momentum with an orthogonalized update (for matrices; further axes count as columns):
/// https://arxiv.org/abs/2502.16982
class Muon : public LARS {
 public:
  explicit Muon(const Tensors& params, const MuonOptions& o = {});
};

// ---- running averages of squares: RMSprop, Adam, AdamW, LAMB ----

struct RmsPropOptions {
  double lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  ///< divides by the standard deviation of the gradient instead of its root mean square
  std::optional<bool> fused = {};
};
/// Running averages of squares, of gradients (when centered) and of updates (with momentum).
struct RmsPropState {
  Tensors square, mean, velocity;
};
/// Computes one step: updates the state and returns the updates to subtract, of the parameters' shapes and types.
Tensors rmsprop_updates(const Tensors& params, const Tensors& grads, const RmsPropState& state, const Tensor& lr,
                        const RmsPropOptions& o);
class RMSprop : public Optimizer {
 public:
  /// Trains `params`. Throws ValueError for options out of their range and for no parameters, DTypeError for parameters
  /// that are no floats.
  explicit RMSprop(const Tensors& params, const RmsPropOptions& o = {});

 private:
  Tensors updates(const Tensors& params, const Tensors& grads) override;
  RmsPropOptions o_;
  RmsPropState moments_;
};

struct LambOptions {
  double lr = 0.001, b1 = 0.9, b2 = 0.999, eps = 1e-6, weight_decay = 0;
  bool adam = false;  ///< no layer-wise trust ratio: AdamW
  std::optional<bool> fused = {};
};
/// LAMB's state: averages of gradients and of their squares, and b1^t and b2^t (tensors, so that a captured step keeps
/// counting).
struct LambState {
  Tensors m, v;
  Tensor b1_power, b2_power;
};
/// Computes one step: updates the state and returns the updates to subtract, of the parameters' shapes and types.
Tensors lamb_updates(const Tensors& params, const Tensors& grads, const LambState& state, const Tensor& lr,
                     const LambOptions& o);

/// Layer-wise adaptive moments: https://arxiv.org/abs/1904.00962
class LAMB : public Optimizer {
 public:
  explicit LAMB(const Tensors& params, const LambOptions& o = {}) : LAMB("LAMB", params, o) {}

 protected:
  LAMB(const char* name, const Tensors& params, const LambOptions& o);

 private:
  Tensors updates(const Tensors& params, const Tensors& grads) override;
  LambOptions o_;
  LambState moments_;
};

struct AdamOptions {
  double lr = 0.001, b1 = 0.9, b2 = 0.999, eps = 1e-8;
  std::optional<bool> fused = {};
};
struct AdamWOptions {
  double lr = 0.001, b1 = 0.9, b2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  std::optional<bool> fused = {};
};
class AdamW : public LAMB {
 public:
  /// Trains `params`. Throws ValueError for options out of their range and for no parameters, DTypeError for parameters
  /// that are no floats.
  explicit AdamW(const Tensors& params, const AdamWOptions& o = {});
};
class Adam : public LAMB {
 public:
  /// Trains `params`. Throws ValueError for options out of their range and for no parameters, DTypeError for parameters
  /// that are no floats.
  explicit Adam(const Tensors& params, const AdamOptions& o = {});
};

}  // namespace tg::nn
