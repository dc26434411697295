/// \file Common parts of single-kernel rows: inputs, checks of sampled elements, and timing of a schedule.
#pragma once
#include <functional>

#include "apps/tg/bench_reference.h"
#include "apps/tg/bench_tables.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::bench {

constexpr double kFloat = sizeof(float);
constexpr size_t kSamples = 200;
constexpr double kTolerance = 2e-6;  // of the sum of magnitudes

/// Returns realized floats, uniform in [-scale, scale).
Tensor input(const Shape& shape, uint64_t seed, float scale = 1);

/// Throws WrongResult unless sampled elements of `got` equal `expected(position)`.
void check_samples(const char* what, const Tensor& got, const std::function<Sum(size_t)>& expected,
                   double tolerance = kTolerance, size_t count = kSamples);

/// Returns the seconds of running the schedule of `make()` into fresh storage, when graph, schedule and code exist
/// already. On an accelerator: the mean of several that follow each other.
Samples time_run(const Context& c, const Work& work, const std::function<Tensors()>& make);

}  // namespace tg::bench
