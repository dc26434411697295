/// \file Optimizers.
#include "tinygrad/nn/optim.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg::nn {
namespace {

void check_not_negative(const char* optimizer, std::initializer_list<std::pair<const char*, double>> values) {
  for (const auto& [name, value] : values)
    TG_CHECK(ValueError, value >= 0 && std::isfinite(value), "[", optimizer, "] got ", name, " = ", value,
             ", expected a finite number, 0 or more");
}

Tensor number(float value, const std::string& device) {
  return Tensor::from(std::vector<float>{value}, Shape{}, {.device = device}).requires_grad_(false);
}

Tensor flat(const Tensors& tensors) {
  Tensors parts;
  for (const Tensor& t : tensors) parts.push_back(t.flatten());
  return Tensor::cat(parts);
}

/// Returns 1 where one of the norms is 0, else the ratio.
Tensor trust_ratio(const Tensor& weight_norm, const Tensor& update_norm, const Tensor& ratio) {
  return ((weight_norm > 0) & (update_norm > 0)).where(ratio, Tensor::full({}, 1.0));
}
Tensor norm(const Tensor& t) { return t.cast(least_upper_dtype(t.dtype(), dtypes::float32)).square().sum().sqrt(); }

}  // namespace

Optimizer::Optimizer(const char* name, const Tensors& params, double rate, std::optional<bool> fused)
    : name_(name), fused_(fused.value_or(bool(env::FUSE_OPTIM))) {
  check_not_negative(name, {{"lr", rate}});
  std::unordered_set<const Tensor::Impl*> seen;
  for (const Tensor& p : params) {
    TG_CHECK(ValueError, p.defined(), "[", name,
             "] got an undefined tensor among the parameters, expected those of nn::get_parameters(model)");
    if (seen.insert(p.impl()).second) (p.requires_grad() == false ? buffers_ : params_).push_back(p);
  }
  TG_CHECK(ValueError, !params_.empty(), "[", name, "] got ",
           params.empty() ? "no tensor" : "only tensors with requires_grad(false)",
           ", expected at least one to train: nn::get_parameters(model)");
  for (const Tensor& p : params_) {
    TG_CHECK(DTypeError, p.is_floating_point(), "[", name, "] got a parameter of type ", p.dtype(),
             ", expected floats; requires_grad_(false) marks tensors that are not trained");
    TG_CHECK(ValueError, !fused_ || (p.dtype() == params_[0].dtype() && p.device() == params_[0].device()), "[", name,
             "] got fused with parameters of ", p.dtype(), " on ", p.device(), " and of ", params_[0].dtype(), " on ",
             params_[0].device(), ", expected one type and device");
    if (!p.requires_grad()) p.is_param_(true);
  }
  lr = number(static_cast<float>(rate), params_[0].device());
}

void Optimizer::add_slot(std::string name, bool per_parameter) {
  const auto taken = [&] { return std::any_of(slots_.begin(), slots_.end(), [&](auto& s) { return s.name == name; }); };
  const std::string base = name;
  for (int i = 2; taken(); i++) name = base + std::to_string(i);
  slots_.push_back({std::move(name), state_.size(), per_parameter});
}

Tensors Optimizer::new_state(std::string name) {
  add_slot(std::move(name), !fused_);
  Tensors out;
  const auto add = [&](const Tensor& zeros) { out.push_back(zeros.contiguous().requires_grad_(false)); };
  const auto zeros = [](const Shape& shape, const std::string& device) {
    return Tensor::zeros(shape, {.dtype = dtypes::float32, .device = device});
  };
  int64_t total = 0;
  for (const Tensor& p : params_) total += p.numel();
  if (fused_) add(zeros({total}, params_[0].device()));
  else
    for (const Tensor& p : params_) add(p.shard_axis() ? p.zeros_like(dtypes::float32) : zeros(p.shape(), p.device()));
  state_.insert(state_.end(), out.begin(), out.end());
  return out;
}

Tensor Optimizer::new_number(float value, std::string name) {
  add_slot(std::move(name), false);
  state_.push_back(number(value, params_[0].device()));
  return state_.back();
}

void Optimizer::allocate() const {
  Tensors all = params_;
  all.insert(all.end(), state_.begin(), state_.end());
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  realize(all);
}

void Optimizer::zero_grad() const {
  for (const Tensor& p : params_) p.zero_grad();
}

Tensors Optimizer::schedule_step() {
  TG_CHECK(ValueError, Tensor::training(), "[", name_,
           "] a step outside of training mode: put `nn::Training train;` before the forward pass");
  Tensors values, grads;
  for (size_t i = 0; i < params_.size(); i++) {
    TG_CHECK(GradientError, params_[i].grad().defined(), "[", name_, "] parameter ", i, " of shape ",
             params_[i].shape(),
             " has no gradient: the loss does not depend on it, or backward() was not called since zero_grad()");
    values.push_back(params_[i].detach());
    grads.push_back(params_[i].grad());
  }
  if (fused_) {
    for (Tensor& g : grads) g = g.contiguous();  // one kernel each, instead of all fused into one
    const Tensor all = updates({flat(values)}, {flat(grads)})[0];
    int64_t at = 0;
    for (size_t i = 0; i < values.size(); at += values[i++].numel())
      params_[i].assign(values[i] -
                        all(Slice(at, at + values[i].numel())).reshape(values[i].shape()).cast(values[i].dtype()));
  } else {
    const Tensors up = updates(values, grads);
    for (size_t i = 0; i < values.size(); i++)
      params_[i].assign(values[i] - up[i].shard_like(values[i]).cast(values[i].dtype()));
  }
  Tensors changed = state_;
  changed.insert(changed.end(), params_.begin(), params_.end());
  changed.insert(changed.end(), buffers_.begin(), buffers_.end());
  return changed;
}

OptimizerGroup::OptimizerGroup(std::initializer_list<std::reference_wrapper<AnyOptimizer>> optimizers)
    : optimizers_(optimizers) {
  TG_CHECK(ValueError, !optimizers_.empty(), "[OptimizerGroup] got no optimizer, expected at least one");
}
void OptimizerGroup::zero_grad() const {
  for (const AnyOptimizer& o : optimizers_) o.zero_grad();
}
Tensors OptimizerGroup::schedule_step() {
  Tensors all;
  for (AnyOptimizer& o : optimizers_) {
    const Tensors some = o.schedule_step();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// ---- momentum ----

Tensors lars_updates(const Tensors& params, const Tensors& grads, const Tensors& momentum, const Tensor& lr,
                     const LarsOptions& o) {
  Tensors out;
  for (size_t i = 0; i < params.size(); i++) {
    const Tensor p = params[i].detach();
    Tensor g = grads[i], rate = lr;
    if (o.trust != 0) {
      const Tensor wn = norm(p), gn = norm(g);
      rate = trust_ratio(wn, gn, o.trust * wn / (gn + o.weight_decay * wn)) * lr;
    }
    if (o.decay_first && o.weight_decay > 0) g = g + o.weight_decay * p;
    if (o.classic) g = g * rate;
    if (o.momentum != 0) {
      const Tensor& b = momentum[i];
      b.assign((o.momentum * b + g.to(b.device()).reshape(b.shape())).cast(b.dtype()));
      g = o.nesterov ? g + o.momentum * b : b;
    }
    if (!o.ns_coefficients.empty())
      g = g.reshape(p.ndim() ? p.shape(0) : 1, -1).newton_schulz(o.ns_steps, o.ns_coefficients).reshape(p.shape());
    if (!o.classic) g = g * rate;
    if (!o.decay_first && o.weight_decay > 0) g = g + o.weight_decay * lr * p;
    out.push_back(g.reshape(p.shape()));  // a learning rate of shape (1,) turns a scalar into a list
  }
  return out;
}

LARS::LARS(const char* name, const Tensors& params, const LarsOptions& o)
    : Optimizer(name, params, o.lr, o.fused), o_(o) {
  check_not_negative(name, {{"momentum", o.momentum}, {"weight_decay", o.weight_decay}, {"trust", o.trust}});
  TG_CHECK(ValueError, !o.nesterov || o.momentum > 0, "[", name, "] got nesterov without momentum");
  TG_CHECK(ValueError, o.ns_coefficients.empty() || (o.ns_steps >= 0 && !fused()), "[", name,
           "] got ns_steps = ", o.ns_steps, fused() ? " and fused" : "",
           ", expected no negative number and no fusing: the iteration works on single matrices");
  if (o.momentum > 0) velocity_ = new_state("b");
  allocate();
}
Tensors LARS::updates(const Tensors& params, const Tensors& grads) {
  return lars_updates(params, grads, velocity_, lr, o_);
}

SGD::SGD(const Tensors& params, const SgdOptions& o)
    : LARS("SGD", params,
           {.lr = o.lr,
            .momentum = o.momentum,
            .weight_decay = o.weight_decay,
            .nesterov = o.nesterov,
            .classic = o.classic,
            .trust = 0,
            .fused = o.fused}) {}

Muon::Muon(const Tensors& params, const MuonOptions& o)
    : LARS("Muon", params,
           {.lr = o.lr,
            .momentum = o.momentum,
            .weight_decay = o.weight_decay,
            .nesterov = o.nesterov,
            .classic = false,
            .trust = 0,
            .decay_first = false,
            .ns_steps = o.ns_steps,
            .ns_coefficients = o.ns_coefficients,
            .fused = false}) {}

// ---- running averages of squares ----

RMSprop::RMSprop(const Tensors& params, const RmsPropOptions& o) : Optimizer("RMSprop", params, o.lr, o.fused), o_(o) {
  check_not_negative("RMSprop",
                     {{"alpha", o.alpha}, {"eps", o.eps}, {"weight_decay", o.weight_decay}, {"momentum", o.momentum}});
  moments_.square = new_state("square");
  if (o.centered) moments_.mean = new_state("mean");
  if (o.momentum > 0) moments_.velocity = new_state("b");
  allocate();
}
Tensors RMSprop::updates(const Tensors& params, const Tensors& grads) {
  return rmsprop_updates(params, grads, moments_, lr, o_);
}

Tensors rmsprop_updates(const Tensors& params, const Tensors& grads, const RmsPropState& state, const Tensor& lr,
                        const RmsPropOptions& o) {
  Tensors out;
  for (size_t i = 0; i < params.size(); i++) {
    const Tensor p = params[i].detach(), &square = state.square[i];
    Tensor g = grads[i].to(square.device()).cast(dtypes::float32);
    if (o.weight_decay > 0) g = g + o.weight_decay * p.to(square.device());
    square.assign((o.alpha * square + (1 - o.alpha) * g.square()).cast(square.dtype()));
    Tensor spread = square;
    if (o.centered) {
      state.mean[i].assign((o.alpha * state.mean[i] + (1 - o.alpha) * g).cast(square.dtype()));
      spread = spread - state.mean[i].square();
    }
    Tensor up = g / (spread.sqrt() + o.eps);
    if (o.momentum > 0) {
      state.velocity[i].assign((o.momentum * state.velocity[i] + up).cast(square.dtype()));
      up = state.velocity[i];
    }
    out.push_back((lr * up.to(p.device())).reshape(p.shape()));
  }
  return out;
}

Tensors lamb_updates(const Tensors& params, const Tensors& grads, const LambState& state, const Tensor& lr,
                     const LambOptions& o) {
  state.b1_power.assign(state.b1_power * o.b1);
  state.b2_power.assign(state.b2_power * o.b2);
  Tensors out;
  for (size_t i = 0; i < params.size(); i++) {
    const Tensor p = params[i].detach(), &m = state.m[i], &v = state.v[i];
    const Tensor g =
        (grads[i].device() == m.device() ? grads[i] : grads[i].contiguous().to(m.device())).cast(dtypes::float32);
    m.assign((o.b1 * m + (1 - o.b1) * g).cast(m.dtype()));
    v.assign((o.b2 * v + (1 - o.b2) * g.square()).cast(v.dtype()));
    const Tensor m_hat = m / (1 - state.b1_power.to(m.device())), v_hat = v / (1 - state.b2_power.to(m.device()));
    Tensor up = (m_hat / (v_hat.sqrt() + o.eps)).to(p.device());
    if (o.weight_decay > 0) up = up + o.weight_decay * p;
    if (!o.adam) {
      const Tensor wn = norm(p), un = norm(up);
      up = trust_ratio(wn, un, wn / un) * up;
    }
    out.push_back((lr * up).reshape(p.shape()));
  }
  return out;
}

LAMB::LAMB(const char* name, const Tensors& params, const LambOptions& o)
    : Optimizer(name, params, o.lr, o.fused), o_(o) {
  check_not_negative(name, {{"b1", o.b1}, {"b2", o.b2}, {"eps", o.eps}, {"weight_decay", o.weight_decay}});
  TG_CHECK(ValueError, o.b1 < 1 && o.b2 < 1, "[", name, "] got b1 = ", o.b1, " and b2 = ", o.b2,
           ", expected numbers below 1");
  moments_.b1_power = new_number(1, "b1_t");
  moments_.b2_power = new_number(1, "b2_t");
  moments_.m = new_state("m");
  moments_.v = new_state("v");
  allocate();
}
Tensors LAMB::updates(const Tensors& params, const Tensors& grads) {
  return lamb_updates(params, grads, moments_, lr, o_);
}

AdamW::AdamW(const Tensors& params, const AdamWOptions& o)
    : LAMB("AdamW", params,
           {.lr = o.lr,
            .b1 = o.b1,
            .b2 = o.b2,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .adam = true,
            .fused = o.fused}) {}
Adam::Adam(const Tensors& params, const AdamOptions& o)
    : LAMB("Adam", params,
           {.lr = o.lr, .b1 = o.b1, .b2 = o.b2, .eps = o.eps, .weight_decay = 0, .adam = true, .fused = o.fused}) {}

}  // namespace tg::nn
