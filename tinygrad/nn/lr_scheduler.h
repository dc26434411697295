/// \file Learning rate schedules. They write into the optimizer's `lr` tensor, so that a captured step sees every new
/// rate; call step() after the optimizer's. The formulas match PyTorch's.
#pragma once
#include <functional>
#include <vector>

#include "tinygrad/nn/optim.h"

namespace tg::nn {

/// Base class: a rate for each step number. `lr`: Optimizer::lr; its value at construction is the base rate.
class LrScheduler {
 public:
  virtual ~LrScheduler() = default;
  LrScheduler(const LrScheduler&) = delete;
  LrScheduler& operator=(const LrScheduler&) = delete;
  /// Advances by one step and writes its rate.
  void step() { go_to(steps_ + 1); }
  /// Sets the step to n: an interrupted run continues there. Throws ValueError for a negative one.
  void go_to(int64_t n);
  int64_t steps() const { return steps_; }
  double rate() const { return rate_; }  ///< the rate last written

 protected:
  explicit LrScheduler(const Tensor& lr);
  virtual double rate_at(int64_t step) const = 0;
  void write(double rate);
  double base_;

 private:
  Tensor lr_;
  double rate_;
  int64_t steps_ = 0;
};

/// Multiplies by gamma every `size` steps.
class StepLR : public LrScheduler {
 public:
  StepLR(const Tensor& lr, int64_t size, double gamma = 0.1);

 private:
  double rate_at(int64_t step) const override;
  int64_t size_;
  double gamma_;
};

/// Multiplies by gamma at each milestone.
class MultiStepLR : public LrScheduler {
 public:
  MultiStepLR(const Tensor& lr, std::vector<int64_t> milestones, double gamma = 0.1);

 private:
  double rate_at(int64_t step) const override;
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// Multiplies by gamma at each step.
class ExponentialLR : public LrScheduler {
 public:
  ExponentialLR(const Tensor& lr, double gamma) : LrScheduler(lr), gamma_(gamma) {}

 private:
  double rate_at(int64_t step) const override;
  double gamma_;
};

/// Goes linearly from `start` to `end` times the base rate in `steps`.
class LinearLR : public LrScheduler {
 public:
  LinearLR(const Tensor& lr, double start, double end, int64_t steps);

 private:
  double rate_at(int64_t step) const override;
  double start_, end_;
  int64_t total_;
};

struct WarmupOptions {
  double eta_min = 0;        ///< where the decay ends
  int64_t warmup_steps = 0;  ///< these climb to the base rate first: base / n, 2 base / n, ..., base
};

/// After the warmup: base * (1 - t / steps)^power, then eta_min.
class PolynomialLR : public LrScheduler {
 public:
  PolynomialLR(const Tensor& lr, int64_t steps, double power = 1, const WarmupOptions& o = {});

 private:
  double rate_at(int64_t step) const override;
  int64_t total_;
  double power_;
  WarmupOptions o_;
};

/// After the warmup: half a cosine wave from the base rate to eta_min in `steps`, and back if it goes on.
class CosineAnnealingLR : public LrScheduler {
 public:
  CosineAnnealingLR(const Tensor& lr, int64_t steps, const WarmupOptions& o = {});

 private:
  double rate_at(int64_t step) const override;
  int64_t total_;
  WarmupOptions o_;
};

struct OneCycleOptions {
  double max_lr;
  int64_t total_steps;
  double pct_start = 0.3;         ///< the part of the steps in which the rate rises
  double div_factor = 25;         ///< starts at max_lr / div_factor
  double final_div_factor = 1e4;  ///< ends at the start / final_div_factor
  enum Anneal : uint8_t { kCosine, kLinear } anneal = kCosine;
};
/// Rises to max_lr and falls again; writes the first rate at once. ValueError when it is stepped beyond total_steps.
class OneCycleLR : public LrScheduler {
 public:
  OneCycleLR(const Tensor& lr, const OneCycleOptions& o);

 private:
  double rate_at(int64_t step) const override;
  OneCycleOptions o_;
};

/// base * factor(step).
class LambdaLR : public LrScheduler {
 public:
  LambdaLR(const Tensor& lr, std::function<double(int64_t)> factor);

 private:
  double rate_at(int64_t step) const override;
  std::function<double(int64_t)> factor_;
};

struct PlateauOptions {
  bool maximize = false;  ///< greater is better
  double factor = 0.1;
  int64_t patience = 10;  ///< steps without improvement that are borne
  double threshold = 1e-4;
  bool relative = true;  ///< an improvement is measured against the best value, else in its unit
  int64_t cooldown = 0;  ///< steps after a reduction that do not count
  double min_lr = 0;
};
/// Reduces the rate when a metric stops improving.
class ReduceLROnPlateau : private LrScheduler {
 public:
  explicit ReduceLROnPlateau(const Tensor& lr, const PlateauOptions& o = {});
  /// Passes the metric of this step; ValueError when it is NaN.
  void step(double metric);
  using LrScheduler::rate;
  double best() const { return best_; }

 private:
  double rate_at(int64_t) const override { return rate(); }
  PlateauOptions o_;
  double best_;
  int64_t bad_ = 0, cooling_ = 0;
};

}  // namespace tg::nn
