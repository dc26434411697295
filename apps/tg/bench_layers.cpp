/// \file Single-layer rows: group normalization, embedding, LSTM, and a transformer block without a mask.
#include <cmath>

#include "apps/tg/bench_kernel.h"
#include "apps/tg/models.h"
#include "tinygrad/nn/rnn.h"

namespace tg::bench {
namespace {

Samples group_norm(const Context& c) {
  constexpr int64_t kBatch = 8, kChannels = 128, kSide = 56, kGroups = 32;
  constexpr size_t kCount = kChannels / kGroups * kSide * kSide;
  const Tensor x = input({kBatch, kChannels, kSide, kSide}, 1);
  const nn::GroupNorm norm(kGroups, kChannels, {.affine = false});
  const std::span<const float> p = x.data<float>();
  check_samples(
      "groupnorm", norm(x),
      [&](size_t at) {
        const float* group = &p[at / kCount * kCount];
        double mean = 0, var = 0;
        for (size_t i = 0; i < kCount; i++) mean += group[i] / double{kCount};
        for (size_t i = 0; i < kCount; i++) var += (group[i] - mean) * (group[i] - mean) / double{kCount};
        return Sum{(p[at] - mean) / std::sqrt(var + 1e-5), 1};
      },
      1e-5);
  const double bytes = static_cast<double>(p.size()) * kFloat;
  return time_run(c, {.bytes_read = bytes, .bytes_written = bytes}, [&] { return Tensors{norm(x)}; });
}

Samples embedding(const Context& c) {
  constexpr int64_t kWords = 50257, kChannels = 768, kBatch = 8, kTime = 512;
  const Tensor table = input({kWords, kChannels}, 1);
  std::vector<int32_t> numbers(kBatch * kTime);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = static_cast<int32_t>(i * 7919 % kWords);
  const Tensor words = Tensor::from(numbers, Shape{kBatch, kTime}).realize();
  const std::span<const float> p = table.data<float>();
  check_samples(
      "embedding", nn::embedding(table, words),
      [&](size_t at) {
        const double v = p[static_cast<size_t>(numbers[at / kChannels]) * kChannels + at % kChannels];
        return Sum{v, 0};
      },
      0);
  const double bytes = double{kBatch * kTime * kChannels} * kFloat;
  return time_run(c, {.bytes_read = bytes, .bytes_written = bytes},
                  [&] { return Tensors{nn::embedding(table, words)}; });
}

/// Computes one layer over a sequence in float64, straight from its formulas.
std::vector<double> lstm_reference(const Tensor& x, const nn::RecurrentWeights& w, size_t time, size_t batch,
                                   size_t size) {
  const std::span<const float> in = x.data<float>(), wi = w.weight_ih.data<float>(), wh = w.weight_hh.data<float>();
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> h(batch * size), cell(batch * size), gates(4 * size);
  for (size_t t = 0; t < time; t++)
    for (size_t b = 0; b < batch; b++) {
      for (size_t g = 0; g < 4 * size; g++) {
        gates[g] = 0;
        for (size_t k = 0; k < size; k++)
          gates[g] += static_cast<double>(wi[g * size + k]) * in[(t * batch + b) * size + k] +
                      wh[g * size + k] * h[b * size + k];
      }
      for (size_t k = 0; k < size; k++) {
        double& s = cell[b * size + k];
        s = sigmoid(gates[size + k]) * s + sigmoid(gates[k]) * std::tanh(gates[2 * size + k]);
        h[b * size + k] = sigmoid(gates[3 * size + k]) * std::tanh(s);
      }
    }
  return h;
}

Samples lstm(const Context& c) {
  constexpr int64_t kTime = 64, kBatch = 32, kSize = 256;
  constexpr double kFlops = 2.0 * kTime * kBatch * 2 * kSize * 4 * kSize;
  const Tensor x = input({kTime, kBatch, kSize}, 1);
  const nn::RecurrentWeights w{input({4 * kSize, kSize}, 2, 1 / 16.f), input({4 * kSize, kSize}, 3, 1 / 16.f), {}, {}};
  const nn::LSTM layer({w});
  const std::vector<double> last = lstm_reference(x, w, kTime, kBatch, kSize);
  check_samples("lstm", layer(x).output.slice(0, kTime - 1, kTime), [&](size_t at) { return Sum{last[at], 1}; }, 1e-5);
  return time_run(c, {.flops = kFlops}, [&] { return Tensors{layer(x).output}; });
}

Samples vit_block(const Context& c) {
  constexpr int64_t kBatch = 8, kTime = 197, kChannels = 768, kHeads = 12;
  models::GptBlock block(kChannels, kHeads), wide(kChannels, kHeads);
  block.causal = wide.causal = false;
  uint64_t seed = 1;
  const nn::StateDict twice = nn::get_state_dict(wide);
  size_t i = 0;
  for (const auto& [name, t] : nn::get_state_dict(block)) {
    if (t.ndim() > 1)
      t.replace(input(t.shape(), seed++, static_cast<float>(1 / std::sqrt(static_cast<double>(t.shape(1))))));
    else t.replace(Tensor::full(t.shape(), name.ends_with("bias") ? 0.f : 1.f).contiguous().realize());
    twice[i++].second.replace(t.cast(dtypes::float64).realize());
  }
  const Tensor x = input({kBatch, kTime, kChannels}, 7);
  const std::vector<double> expected = wide(x.cast(dtypes::float64)).to_vector<double>();
  check_samples("vit block", block(x), [&](size_t at) { return Sum{expected[at], 1 + std::abs(expected[at])}; }, 1e-5);
  constexpr double kFlops = kBatch * (2.0 * kTime * kChannels * 12 * kChannels + 4.0 * kTime * kTime * kChannels);
  return time_run(c, {.flops = kFlops}, [&] { return Tensors{block(x)}; });
}

constexpr Row kRows[] = {
    {"groupnorm_8x128x56", "ms", "32 groups of (8, 128, 56, 56)", [](Context& c) { return group_norm(c); }},
    {"embedding_50257x768", "ms", "(8, 512) rows of (50257, 768)", [](Context& c) { return embedding(c); }},
    {"lstm_64x32x256", "GFLOP/s", "64 steps, batch 32, 256 in and out", [](Context& c) { return lstm(c); }},
    {"vit_block_fwd", "GFLOP/s", "transformer block without a mask, (8, 197, 768)",
     [](Context& c) { return vit_block(c); }},
};

}  // namespace

std::span<const Row> layer_rows() { return kRows; }

}  // namespace tg::bench
