/// \file Steps of sampling.
#include "models/diffusion.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::models {
namespace {

/// The numbers of a step: x_0 is guessed as x times `from_x` plus the prediction times `from_prediction`; guesses are
/// combined, this one `now` times and the last one `before` times; the next x is x times `keep` plus that times `move`.
struct StepNumbers {
  double in, from_x, from_prediction, now, before, keep, move;
};

/// Runs steps that differ in numbers alone, so that one capture serves all.
Tensor run(const NoisePredictor& predictor, const Tensor& start, const std::vector<int64_t>& timesteps,
           const std::vector<StepNumbers>& numbers) {
  auto step = [&](const Tensor& x, const Tensor& last, const Tensor& t, const Tensor& n) -> Tensors {
    const Tensor prediction = predictor(x * n[0], t).cast(x.dtype());
    const Tensor guess = x * n[1] + prediction * n[2];
    return {x * n[5] + (guess * n[3] + last * n[4]) * n[6], guess};
  };
  const auto captured = jit(step, {.name = "sampling step"});
  Tensors state = {start.contiguous().realize(), start.zeros_like().contiguous().realize()};
  for (size_t i = 0; i < timesteps.size(); i++) {
    const StepNumbers& s = numbers[i];
    const std::vector<double> values = {s.in, s.from_x, s.from_prediction, s.now, s.before, s.keep, s.move};
    const Tensor n = Tensor::from(values, {.dtype = start.dtype(), .device = start.device()}).realize();
    const std::vector<int32_t> same(static_cast<size_t>(start.shape(0)), static_cast<int32_t>(timesteps[i]));
    const Tensor t = Tensor::from(same, TensorOptions{.device = start.device()}).realize();
    state = captured(state[0], state[1], t, n);
  }
  return state[0];
}

void check(const char* name, const SamplerOptions& o) {
  TG_CHECK(ValueError, o.steps > 0 && o.steps <= std::ssize(o.schedule.kept), "[", name, "] got ", o.steps,
           " steps, expected 1 to ", o.schedule.kept.size());
}

}  // namespace

NoiseSchedule::NoiseSchedule(int64_t steps, double first, double last) {
  TG_CHECK(ValueError, steps >= 2, "[NoiseSchedule] got ", steps, " steps, expected at least 2");
  double product = 1;
  for (int64_t t = 0; t < steps; t++) {
    const double part = static_cast<double>(t) / static_cast<double>(steps - 1);
    const double root = std::sqrt(first) + (std::sqrt(last) - std::sqrt(first)) * part;
    product *= 1 - root * root;
    kept.push_back(product);
  }
}

double NoiseSchedule::sigma(int64_t t) const {
  const double k = kept.at(static_cast<size_t>(t));
  return std::sqrt((1 - k) / k);
}

Tensor NoiseSchedule::noisy(const Tensor& images, const Tensor& noise, const Tensor& timesteps) const {
  Tensor k = Tensor::from(kept, {.dtype = dtypes::float32, .device = images.device()})[timesteps];
  while (k.ndim() < images.ndim()) k = k.unsqueeze(-1);
  return (images * k.sqrt() + noise * (1 - k).sqrt()).cast(images.dtype());
}

Tensor sample_ddim(const NoisePredictor& predictor, const Tensor& noise, const SamplerOptions& o) {
  check("sample_ddim", o);
  const auto all = std::ssize(o.schedule.kept);
  const int64_t apart = all / o.steps;
  std::vector<int64_t> timesteps;
  std::vector<StepNumbers> numbers;
  for (int64_t i = o.steps; i-- > 0;) {
    const int64_t t = std::min<int64_t>(i * apart + 1, all - 1);
    const double kept = o.schedule.kept[static_cast<size_t>(t)];
    const double next = i == 0 ? 1 : o.schedule.kept[static_cast<size_t>((i - 1) * apart + 1)];
    const double image = std::sqrt(kept), rest = std::sqrt(1 - kept);
    // x = image x_0 + rest noise, and the same noise belongs to the next x.
    const double noise_from_x = 1 / rest, noise_from_guess = -image / rest, next_noise = std::sqrt(1 - next);
    timesteps.push_back(t);
    numbers.push_back({.in = 1,
                       .from_x = o.prediction == Prediction::kNoise ? 1 / image : image,
                       .from_prediction = o.prediction == Prediction::kNoise ? -rest / image : -rest,
                       .now = 1,
                       .before = 0,
                       .keep = next_noise * noise_from_x,
                       .move = std::sqrt(next) + next_noise * noise_from_guess});
  }
  return run(predictor, noise, timesteps, numbers);
}

Tensor sample_dpm_solver(const NoisePredictor& predictor, const Tensor& noise, const SamplerOptions& o) {
  check("sample_dpm_solver", o);
  const double last = static_cast<double>(o.schedule.kept.size() - 1);
  std::vector<int64_t> timesteps;
  for (int64_t i = 0; i < o.steps; i++)
    timesteps.push_back(static_cast<int64_t>(last - static_cast<double>(i) * last / static_cast<double>(o.steps)));
  std::vector<StepNumbers> numbers;
  double step_before = 0;
  for (size_t i = 0; i < timesteps.size(); i++) {
    const double sigma = o.schedule.sigma(timesteps[i]), scale = std::sqrt(sigma * sigma + 1);
    StepNumbers s{.in = 1 / scale,
                  .from_x = o.prediction == Prediction::kNoise ? 1 : 1 / (scale * scale),
                  .from_prediction = o.prediction == Prediction::kNoise ? -sigma : -sigma / scale,
                  .now = 1,
                  .before = 0,
                  .keep = 0,
                  .move = 1};
    if (i + 1 < timesteps.size()) {
      // Along the logarithm of sigma the guess is taken to change linearly, from the last one on.
      const double next = o.schedule.sigma(timesteps[i + 1]), step = std::log(sigma) - std::log(next);
      s.keep = next / sigma;
      s.move = 1 - next / sigma;
      if (i > 0) s.before = -step / (2 * step_before);
      s.now = 1 - s.before;
      step_before = step;
    }
    numbers.push_back(s);
  }
  const double first = o.schedule.sigma(timesteps[0]);
  return run(predictor, noise * std::sqrt(1 + first * first), timesteps, numbers);
}

NoisePredictor guided(const UNet& network, const GuidingVectors& prompt, const GuidingVectors& empty, double scale) {
  TG_CHECK(ShapeError, prompt.context.shape() == empty.context.shape(), "[guided] got prompts ", prompt.context.shape(),
           " and ", empty.context.shape(), ", expected one shape");
  const Tensor context = empty.context.cat(prompt.context).contiguous().realize();
  const Tensor vector = prompt.vector.defined() ? empty.vector.cat(prompt.vector).contiguous().realize() : Tensor();
  return [&network, context, vector, scale](const Tensor& latents, const Tensor& timesteps) {
    const Tensors both = network({latents.cat(latents), timesteps.cat(timesteps), context, vector}).chunk(2);
    return both[0] + (both[1] - both[0]) * scale;
  };
}

}  // namespace tg::models
