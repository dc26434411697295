/// \file Training utilities: clipping, accumulation, averages, mixed precision, gradient checks.
#include "tinygrad/nn/train.h"

#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::nn {
namespace {

Tensors with_gradients(const Tensors& params, const char* op) {
  Tensors out;
  for (const Tensor& p : params)
    if (p.grad().defined()) out.push_back(p);
  TG_CHECK(GradientError, !out.empty(), "[", op, "] got ", params.size(),
           " parameters, none of which has a gradient: call backward() first");
  return out;
}

bool trained(const Tensor& t) { return t.is_floating_point() && t.requires_grad() != false; }

Tensor values(const std::vector<double>& v, const Tensor& like) {
  return Tensor::from(v, like.shape(), {.dtype = like.dtype(), .device = like.device()});
}

}  // namespace

Tensor clip_grad_norm(const Tensors& params, double max_norm, double p) {
  TG_CHECK(ValueError, max_norm >= 0 && p > 0, "[clip_grad_norm] got max_norm = ", max_norm, " and p = ", p,
           ", expected positive numbers");
  const Tensors some = with_gradients(params, "clip_grad_norm");
  const std::string device = some[0].device();
  Tensors parts;
  for (const Tensor& t : some) {
    const Tensor g = t.grad().to_float().abs();
    parts.push_back((std::isinf(p) ? g.max() : p == 2 ? g.square().sum() : g.pow(p).sum()).to(device));
  }
  const Tensor all = Tensor::stack(parts);
  // Stored, because it is read by the gradients about to be scaled, and maybe by the caller.
  const Tensor norm = (std::isinf(p) ? all.max() : p == 2 ? all.sum().sqrt() : all.sum().pow(1 / p)).contiguous();
  const Tensor factor = (max_norm / (norm + 1e-6)).minimum(1.0);
  for (const Tensor& t : some) t.set_grad((t.grad() * factor.to(t.device())).cast(t.grad().dtype()));
  return norm;
}

void clip_grad_value(const Tensors& params, double limit) {
  TG_CHECK(ValueError, limit >= 0, "[clip_grad_value] got ", limit, ", expected no negative number");
  for (const Tensor& t : with_gradients(params, "clip_grad_value"))
    t.set_grad(t.grad().clamp(Tensor(-limit), Tensor(limit)));
}

GradAccumulator::GradAccumulator(AnyOptimizer& optimizer, const Tensors& params, int64_t n)
    : optimizer_(optimizer), params_(params), n_(n) {
  TG_CHECK(ValueError, n > 0, "[GradAccumulator] got n = ", n, ", expected a positive number");
}
bool GradAccumulator::backward(const Tensor& loss) {
  JitCore::at_capture_end(this, [this, before = count_] {
    const int64_t losses = count_ - before;
    return losses % n_ == 0
               ? std::string()
               : str("passes ", losses, " of the ", n_,
                     " losses of a step to a GradAccumulator: replays would do what this call did, step or ",
                     "not. Let the function do all losses of a step, or call backward() outside of it");
  });
  (loss / n_).backward();
  Tensors grads;
  for (const Tensor& p : with_gradients(params_, "GradAccumulator")) grads.push_back(p.grad());
  realize(grads);  // otherwise the graphs of all losses stay pending until the step
  if (++count_ % n_ != 0) return false;
  optimizer_.step();
  optimizer_.zero_grad();
  return true;
}

Ema::Ema(const Tensors& params, double decay) : params_(params), decay_(decay) {
  TG_CHECK(ValueError, decay >= 0 && decay <= 1, "[Ema] got decay = ", decay, ", expected one in [0, 1]");
  for (const Tensor& p : params_) averages_.push_back(p.detach().clone().requires_grad_(false));
  if (!averages_.empty()) realize(averages_);
}
void Ema::update() const {
  for (size_t i = 0; i < params_.size(); i++) {
    const Tensor p = params_[i].detach(), &a = averages_[i];
    a.assign(a.is_floating_point() ? (decay_ * a + (1 - decay_) * p).cast(a.dtype()) : p);
  }
  if (!averages_.empty()) realize(averages_);
}
void Ema::swap() const {
  Tensors now, all = params_;
  for (const Tensor& p : params_) now.push_back(p.detach().clone());
  realize(now);
  for (size_t i = 0; i < params_.size(); i++) {
    params_[i].assign(averages_[i]);
    averages_[i].assign(now[i]);
  }
  all.insert(all.end(), averages_.begin(), averages_.end());
  realize(all);
}

LossScaler::LossScaler(const LossScalerOptions& o) : o_(o), value_(o.scale) {
  TG_CHECK(ValueError, o.scale > 0 && o.growth >= 1 && o.backoff > 0 && o.backoff < 1 && o.interval > 0,
           "[LossScaler] got scale = ", o.scale, ", growth = ", o.growth, ", backoff = ", o.backoff,
           " and interval = ", o.interval, ", expected positive numbers, growth at least and backoff below 1");
  scale_ = Tensor::from(std::vector<float>{static_cast<float>(o.scale)}, Shape{}).requires_grad_(false).realize();
}
Tensor LossScaler::scale(const Tensor& loss) const { return loss.to_float() * scale_.to(loss.device()); }
void LossScaler::unscale(const Tensors& params) {
  TG_CHECK(ValueError, !unscaled_, "[LossScaler] got unscale() twice before a step");
  for (const Tensor& t : with_gradients(params, "LossScaler"))
    t.set_grad((t.grad().to_float() / scale_.to(t.device())).cast(t.grad().dtype()));
  unscaled_ = true;
}
void LossScaler::set(double value) {
  value_ = value;
  scale_.assign(Tensor::from(std::vector<float>{static_cast<float>(value)}, Shape{}, {.device = scale_.device()}))
      .realize();
}
bool LossScaler::step(AnyOptimizer& optimizer, const Tensors& params) {
  if (!unscaled_) unscale(params);
  unscaled_ = false;
  Tensors all, finite;
  for (const Tensor& t : with_gradients(params, "LossScaler")) {
    all.push_back(t.grad());
    finite.push_back(t.grad().isfinite().all().to(scale_.device()));
  }
  const Tensor ok = Tensor::stack(finite).all();
  all.push_back(ok);
  realize(all);
  if (!ok.item<bool>()) {
    good_ = 0;
    set(value_ * o_.backoff);
    return false;
  }
  optimizer.step();
  if (++good_ % o_.interval == 0) set(value_ * o_.growth);
  return true;
}

MasterWeights::MasterWeights(const Tensors& params) {
  for (const Tensor& p : params)
    if (trained(p)) {
      params_.push_back(p);
      masters_.push_back(p.detach().to_float().clone().is_param_());
    }
  TG_CHECK(ValueError, !masters_.empty(), "[MasterWeights] got no tensor to train, expected nn::get_parameters(model)");
  realize(masters_);
}
void MasterWeights::take_gradients() const {
  with_gradients(params_, "MasterWeights");
  for (size_t i = 0; i < params_.size(); i++) {
    masters_[i].set_grad(params_[i].grad().defined() ? params_[i].grad().to_float() : Tensor());
    params_[i].zero_grad();
  }
}
void MasterWeights::update() const {
  for (size_t i = 0; i < params_.size(); i++) params_[i].assign(masters_[i].detach().cast(params_[i].dtype()));
  realize(params_);
}

void cast_parameters(const Tensors& params, DType d) {
  TG_CHECK(DTypeError, d.is_float(), "[cast_parameters] got ", d, ", expected a float type");
  Tensors changed;
  for (const Tensor& t : params) {
    if (!trained(t)) continue;
    const std::optional<bool> asked = t.requires_grad();
    t.replace(t.detach().cast(d).contiguous());
    if (asked) t.requires_grad_(*asked);
    changed.push_back(t);
  }
  if (!changed.empty()) realize(changed);
}

// ---- gradient checks ----

Tensor jacobian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Tensor at = x.detach().clone().requires_grad_(true).realize();
  const Tensor y = f(at);
  Tensors rows;
  std::vector<double> seed(static_cast<size_t>(y.numel()));
  for (double& s : seed) {  // as data: all rows run the same kernels
    s = 1;
    rows.push_back(y.gradient({at}, values(seed, y))[0].flatten().realize());
    s = 0;
  }
  return Tensor::stack(rows);
}

Tensor numerical_jacobian(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, double eps) {
  TG_CHECK(ValueError, eps > 0, "[numerical_jacobian] got eps = ", eps, ", expected a positive number");
  std::vector<double> v = x.to_vector<double>();
  Tensors columns;
  for (double& e : v) {
    const double middle = e;
    e = middle + eps;
    const Tensor above = f(values(v, x)).to_double().realize();
    e = middle - eps;
    const Tensor below = f(values(v, x)).to_double().realize();
    e = middle;
    columns.push_back(((above - below) / (2 * eps)).cast(x.dtype()).flatten().realize());
  }
  return Tensor::stack(columns, 1);
}

bool gradcheck(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const GradcheckOptions& o) {
  TG_CHECK(DTypeError, x.is_floating_point(), "[gradcheck] got a tensor of ", x.dtype(), ", expected floats");
  return jacobian(f, x).allclose(numerical_jacobian(f, x, o.eps), o.rtol, o.atol).item<bool>();
}

}  // namespace tg::nn
