/// \file Learning rate schedules.
#include "tinygrad/nn/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::nn {
namespace {

double between(double from, double to, double part, bool cosine) {
  return cosine ? to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part)) : from + (to - from) * part;
}
void check_steps(const char* name, int64_t steps, int64_t warmup = 0) {
  TG_CHECK(ValueError, steps > 0 && warmup >= 0, "[", name, "] got ", steps, " steps and a warmup of ", warmup,
           ", expected a positive number", " and none below 0");
}

}  // namespace

LrScheduler::LrScheduler(const Tensor& lr) : lr_(lr) {
  TG_CHECK(ValueError, lr.defined() && lr.numel() == 1, "[LrScheduler] got ",
           lr.defined() ? str("a tensor of shape ", lr.shape()) : "no tensor",
           ", expected the optimizer's lr: CosineAnnealingLR(optimizer.lr, ...)");
  rate_ = base_ = lr.item<double>();
}

void LrScheduler::write(double rate) {
  rate_ = rate;
  JitCore::at_capture_end(this, [] {
    return "steps a learning rate schedule: replays would write this call's rate. Step it outside of the function";
  });
  // Data, not a constant in the graph: the same copy kernel for every rate.
  lr_.assign(Tensor::from(std::vector<float>{static_cast<float>(rate)}, lr_.shape(), {.device = lr_.device()})
                 .cast(lr_.dtype()))
      .realize();
}

void LrScheduler::go_to(int64_t n) {
  TG_CHECK(ValueError, n >= 0, "[LrScheduler] got step ", n, ", expected no negative number");
  const double rate = rate_at(n);
  steps_ = n;
  write(rate);
}

StepLR::StepLR(const Tensor& lr, int64_t size, double gamma) : LrScheduler(lr), size_(size), gamma_(gamma) {
  check_steps("StepLR", size);
}
double StepLR::rate_at(int64_t step) const { return base_ * std::pow(gamma_, static_cast<double>(step / size_)); }

MultiStepLR::MultiStepLR(const Tensor& lr, std::vector<int64_t> milestones, double gamma)
    : LrScheduler(lr), milestones_(std::move(milestones)), gamma_(gamma) {}
double MultiStepLR::rate_at(int64_t step) const {
  return base_ * std::pow(gamma_, static_cast<double>(std::count_if(milestones_.begin(), milestones_.end(),
                                                                    [&](int64_t m) { return m <= step; })));
}

double ExponentialLR::rate_at(int64_t step) const { return base_ * std::pow(gamma_, static_cast<double>(step)); }

LinearLR::LinearLR(const Tensor& lr, double start, double end, int64_t steps)
    : LrScheduler(lr), start_(start), end_(end), total_(steps) {
  check_steps("LinearLR", steps);
  write(rate_at(0));
}
double LinearLR::rate_at(int64_t step) const {
  return base_ * between(start_, end_, std::min(1.0, static_cast<double>(step) / static_cast<double>(total_)), false);
}

PolynomialLR::PolynomialLR(const Tensor& lr, int64_t steps, double power, const WarmupOptions& o)
    : LrScheduler(lr), total_(steps), power_(power), o_(o) {
  check_steps("PolynomialLR", steps, o.warmup_steps);
  write(rate_at(0));
}
double PolynomialLR::rate_at(int64_t step) const {
  if (step < o_.warmup_steps) return base_ * static_cast<double>(step + 1) / static_cast<double>(o_.warmup_steps);
  const double left = std::max(0.0, 1 - static_cast<double>(step - o_.warmup_steps) / static_cast<double>(total_));
  return o_.eta_min + (base_ - o_.eta_min) * std::pow(left, power_);
}

CosineAnnealingLR::CosineAnnealingLR(const Tensor& lr, int64_t steps, const WarmupOptions& o)
    : LrScheduler(lr), total_(steps), o_(o) {
  check_steps("CosineAnnealingLR", steps, o.warmup_steps);
  write(rate_at(0));
}
double CosineAnnealingLR::rate_at(int64_t step) const {
  if (step < o_.warmup_steps) return base_ * static_cast<double>(step + 1) / static_cast<double>(o_.warmup_steps);
  return between(base_, o_.eta_min, static_cast<double>(step - o_.warmup_steps) / static_cast<double>(total_), true);
}

OneCycleLR::OneCycleLR(const Tensor& lr, const OneCycleOptions& o) : LrScheduler(lr), o_(o) {
  check_steps("OneCycleLR", o.total_steps);
  TG_CHECK(ValueError, o.pct_start >= 0 && o.pct_start <= 1, "[OneCycleLR] got pct_start = ", o.pct_start,
           ", expected a part between 0 and 1");
  TG_CHECK(ValueError, o.max_lr > 0 && o.div_factor > 0 && o.final_div_factor > 0,
           "[OneCycleLR] got max_lr = ", o.max_lr, ", div_factor = ", o.div_factor,
           " and final_div_factor = ", o.final_div_factor, ", expected positive numbers");
  write(rate_at(0));
}
double OneCycleLR::rate_at(int64_t step) const {
  TG_CHECK(ValueError, step <= o_.total_steps, "[OneCycleLR] got step ", step,
           ", expected at most total_steps = ", o_.total_steps);
  const double t = static_cast<double>(step), total = static_cast<double>(o_.total_steps),
               top = o_.pct_start * total - 1, end = total - 1;
  const double start = o_.max_lr / o_.div_factor, last = start / o_.final_div_factor;
  const bool cosine = o_.anneal == OneCycleOptions::kCosine;
  if (t <= top && top > 0) return between(start, o_.max_lr, t / top, cosine);
  return between(o_.max_lr, last, end > top ? std::min(1.0, (t - top) / (end - top)) : 1, cosine);
}

LambdaLR::LambdaLR(const Tensor& lr, std::function<double(int64_t)> factor)
    : LrScheduler(lr), factor_(std::move(factor)) {
  write(rate_at(0));
}
double LambdaLR::rate_at(int64_t step) const { return base_ * factor_(step); }

ReduceLROnPlateau::ReduceLROnPlateau(const Tensor& lr, const PlateauOptions& o) : LrScheduler(lr), o_(o) {
  TG_CHECK(ValueError, o.factor > 0 && o.factor < 1, "[ReduceLROnPlateau] got factor = ", o.factor,
           ", expected one between 0 and 1");
  TG_CHECK(ValueError, o.patience >= 0 && o.cooldown >= 0, "[ReduceLROnPlateau] got patience = ", o.patience,
           " and cooldown = ", o.cooldown, ", expected no negative number");
  best_ = std::numeric_limits<double>::infinity() * (o.maximize ? -1 : 1);
}
void ReduceLROnPlateau::step(double metric) {
  TG_CHECK(ValueError, !std::isnan(metric), "[ReduceLROnPlateau] got a metric that is not a number");
  const double sign = o_.maximize ? 1 : -1;
  const double mark = std::isinf(best_) ? best_
                      : o_.relative     ? best_ * (1 + sign * o_.threshold)
                                        : best_ + sign * o_.threshold;
  if (sign * metric > sign * mark) {
    best_ = metric;
    bad_ = 0;
  } else bad_++;
  if (cooling_ > 0) {
    cooling_--;
    bad_ = 0;
  }
  if (bad_ <= o_.patience) return;
  if (const double next = std::max(rate() * o_.factor, o_.min_lr); rate() - next > 1e-8) write(next);
  cooling_ = o_.cooldown;
  bad_ = 0;
}

}  // namespace tg::nn
