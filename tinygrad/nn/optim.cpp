/// \file Optimizers.
#include "tinygrad/nn/optim.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg::nn {
namespace {

void check_not_negative(const char* optimizer, std::initializer_list<std::pair<const char*, double>> values) {
  for (const auto& [name, value] : values)
    TG_CHECK(ValueError, value >= 0, "[", optimizer, "] got ", name, " = ", value, ", expected no negative number");
}

Tensor number(float value, const std::string& device) {
  return Tensor::from(std::vector<float>{value}, Shape{}, {.device = device}).requires_grad_(false);
}

}  // namespace

Optimizer::Optimizer(const char* name, const Tensors& params, double rate) : name_(name) {
  check_not_negative(name, {{"lr", rate}});
  for (const Tensor& p : params) {
    Tensors& kind = p.requires_grad() == false ? buffers_ : params_;
    if (std::any_of(kind.begin(), kind.end(), [&](const Tensor& t) { return t.is_same(p); })) continue;
    kind.push_back(p);
  }
  TG_CHECK(ValueError, !params_.empty(), "[", name, "] got no tensor to train, expected at least one without requires_grad(false)");
  for (const Tensor& p : params_) {
    TG_CHECK(DTypeError, p.is_floating_point(), "[", name, "] got a parameter of type ", p.dtype(),
             ", expected floats; requires_grad_(false) marks tensors that are not trained");
    p.requires_grad_(true);
  }
  lr = number(static_cast<float>(rate), params_[0].device());
}

Tensors Optimizer::new_state() {
  Tensors out;
  for (const Tensor& p : params_)
    out.push_back(Tensor::zeros(p.shape(), {.dtype = dtypes::float32, .device = p.device()}).contiguous().requires_grad_(false));
  state_.insert(state_.end(), out.begin(), out.end());
  return out;
}

Tensor Optimizer::new_number(float value) {
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
  TG_CHECK(ValueError, Tensor::training(), "[", name_, "] a step outside of training mode: put `nn::Training train;` before the forward pass");
  for (size_t i = 0; i < params_.size(); i++)
    TG_CHECK(GradientError, params_[i].grad().defined(), "[", name_, "] parameter ", i, " of shape ", params_[i].shape(),
             " has no gradient: the loss does not depend on it, or backward() was not called since zero_grad()");
  begin_step();
  for (size_t i = 0; i < params_.size(); i++) {
    const Tensor& p = params_[i];
    p.assign(p.detach() - update(i, p.detach(), p.grad()).cast(p.dtype()));
  }
  Tensors changed = state_;
  changed.insert(changed.end(), params_.begin(), params_.end());
  changed.insert(changed.end(), buffers_.begin(), buffers_.end());
  return changed;
}

SGD::SGD(const Tensors& params, const SgdOptions& o) : Optimizer("SGD", params, o.lr), o_(o) {
  check_not_negative("SGD", {{"momentum", o.momentum}, {"weight_decay", o.weight_decay}});
  TG_CHECK(ValueError, !o.nesterov || o.momentum > 0, "[SGD] got nesterov without momentum");
  if (o.momentum > 0) velocity_ = new_state();
  allocate();
}

Tensor SGD::update(size_t i, const Tensor& param, const Tensor& grad) {
  Tensor g = o_.weight_decay > 0 ? grad + o_.weight_decay * param : grad;
  if (o_.momentum > 0) {
    const Tensor& b = velocity_[i];
    b.assign(o_.momentum * b + g);
    g = o_.nesterov ? g + o_.momentum * b : b;
  }
  return lr * g;
}

RMSprop::RMSprop(const Tensors& params, const RmsPropOptions& o) : Optimizer("RMSprop", params, o.lr), o_(o) {
  check_not_negative("RMSprop", {{"alpha", o.alpha}, {"eps", o.eps}, {"momentum", o.momentum}, {"weight_decay", o.weight_decay}});
  square_ = new_state();
  if (o.centered) mean_ = new_state();
  if (o.momentum > 0) velocity_ = new_state();
  allocate();
}

Tensor RMSprop::update(size_t i, const Tensor& param, const Tensor& grad) {
  const Tensor g = o_.weight_decay > 0 ? grad + o_.weight_decay * param : grad;
  square_[i].assign(o_.alpha * square_[i] + (1 - o_.alpha) * g.square());
  Tensor spread = square_[i];
  if (o_.centered) {
    mean_[i].assign(o_.alpha * mean_[i] + (1 - o_.alpha) * g);
    spread = spread - mean_[i].square();
  }
  const Tensor up = g / (spread.sqrt() + o_.eps);
  if (o_.momentum == 0) return lr * up;
  velocity_[i].assign(o_.momentum * velocity_[i] + up);
  return lr * velocity_[i];
}

AdamW::AdamW(const char* name, const Tensors& params, const AdamWOptions& o) : Optimizer(name, params, o.lr), o_(o) {
  check_not_negative(name, {{"b1", o.b1}, {"b2", o.b2}, {"eps", o.eps}, {"weight_decay", o.weight_decay}});
  TG_CHECK(ValueError, o.b1 < 1 && o.b2 < 1, "[", name, "] got b1 = ", o.b1, " and b2 = ", o.b2, ", expected numbers below 1");
  b1_power_ = new_number(1);
  b2_power_ = new_number(1);
  m_ = new_state();
  v_ = new_state();
  allocate();
}

void AdamW::begin_step() {
  b1_power_ *= o_.b1;
  b2_power_ *= o_.b2;
}

Tensor AdamW::update(size_t i, const Tensor& param, const Tensor& grad) {
  m_[i].assign(o_.b1 * m_[i] + (1 - o_.b1) * grad.cast(dtypes::float32));
  v_[i].assign(o_.b2 * v_[i] + (1 - o_.b2) * grad.cast(dtypes::float32).square());
  const Tensor m_hat = m_[i] / (1 - b1_power_), v_hat = v_[i] / (1 - b2_power_);
  Tensor up = m_hat / (v_hat.sqrt() + o_.eps);
  if (o_.weight_decay > 0) up = up + o_.weight_decay * param;
  return lr * up;
}

}  // namespace tg::nn
