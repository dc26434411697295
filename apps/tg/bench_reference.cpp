/// \file Plain loops in float64.
#include "apps/tg/bench_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "apps/tg/bench.h"
#include "tinygrad/base/hash.h"

namespace tg::bench {

std::vector<float> random_floats(size_t n, uint64_t seed) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; i++)
    out[i] = static_cast<float>(static_cast<int64_t>(mix64(seed * 0x9E3779B97F4A7C15 + i + 1) >> 40)) * 0x1p-23f - 1;
  return out;
}

std::vector<size_t> sample(size_t n, size_t count) {
  std::vector<size_t> out{0, n - 1};
  for (size_t i = 0; i < count; i++) out.push_back(mix64(i + 1) % n);
  return out;
}

void check_close(const char* what, size_t at, double got, const Sum& expected, double tolerance) {
  BENCH_CHECK(std::abs(got - expected.value) <= tolerance * expected.magnitude, "[bench] ", what, ": element ", at,
              " is ", got, ", expected ", expected.value);
}

Sum Conv::forward(std::span<const float> x, std::span<const float> weight, size_t at) const {
  const auto i = static_cast<int64_t>(at);
  const int64_t col = i % out_w(), row = i / out_w() % out_h(), o = i / (out_w() * out_h()) % out,
                image = i / (out_w() * out_h() * out);
  const int64_t each = in / groups, first = o / (out / groups) * each;  // channels that o sees
  Sum sum;
  for (int64_t c = 0; c < each; c++)
    for (int64_t a = 0; a < kernel; a++)
      for (int64_t b = 0; b < kernel; b++) {
        const int64_t r = row * stride + a * dilation - padding, q = col * stride + b * dilation - padding;
        if (r < 0 || r >= h || q < 0 || q >= w) continue;
        sum.add(static_cast<double>(x[((image * in + first + c) * h + r) * w + q]) *
                weight[((o * each + c) * kernel + a) * kernel + b]);
      }
  return sum;
}

Sum Conv::grad_input(std::span<const float> dy, std::span<const float> weight, size_t at) const {
  const auto i = static_cast<int64_t>(at);
  const int64_t col = i % w, row = i / w % h, c = i / (w * h) % in, image = i / (w * h * in);
  const int64_t each = in / groups, outs = out / groups, first = c / each * outs;  // channels that see c
  Sum sum;
  for (int64_t o = first; o < first + outs; o++)
    for (int64_t a = 0; a < kernel; a++)
      for (int64_t b = 0; b < kernel; b++) {
        const int64_t r = row + padding - a * dilation, q = col + padding - b * dilation;
        if (r < 0 || q < 0 || r % stride || q % stride || r / stride >= out_h() || q / stride >= out_w()) continue;
        sum.add(static_cast<double>(dy[((image * out + o) * out_h() + r / stride) * out_w() + q / stride]) *
                weight[((o * each + c % each) * kernel + a) * kernel + b]);
      }
  return sum;
}

Sum Conv::grad_weight(std::span<const float> x, std::span<const float> dy, size_t at) const {
  const auto i = static_cast<int64_t>(at);
  const int64_t each = in / groups;
  const int64_t b = i % kernel, a = i / kernel % kernel, o = i / (kernel * kernel * each),
                c = o / (out / groups) * each + i / (kernel * kernel) % each;
  Sum sum;
  for (int64_t image = 0; image < n; image++)
    for (int64_t row = 0; row < out_h(); row++)
      for (int64_t col = 0; col < out_w(); col++) {
        const int64_t r = row * stride + a * dilation - padding, q = col * stride + b * dilation - padding;
        if (r < 0 || r >= h || q < 0 || q >= w) continue;
        sum.add(static_cast<double>(dy[((image * out + o) * out_h() + row) * out_w() + col]) *
                x[((image * in + c) * h + r) * w + q]);
      }
  return sum;
}

GptReference::GptReference(const models::GptBlock& block) : channels_(block.channels), heads_(block.heads) {
  for (const auto& [name, t] : nn::get_state_dict(block)) parameters_.emplace_back(name, t.to_vector<double>());
}

const std::vector<double>& GptReference::parameter(const std::string& name) const {
  for (const auto& [n, values] : parameters_)
    if (n == name) return values;
  throw ValueError("[bench] no parameter " + name);
}

void GptReference::change(const std::string& name, size_t at, double by) {
  for (auto& [n, values] : parameters_)
    if (n == name) values[at] += by;
}

std::vector<double> GptReference::layer_norm(const std::vector<double>& x, const std::string& name) const {
  const std::vector<double>&weight = parameter(name + ".weight"), &bias = parameter(name + ".bias");
  const auto c = static_cast<size_t>(channels_);
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += c) {
    double mean = 0, var = 0;
    for (size_t i = 0; i < c; i++) mean += x[row + i] / static_cast<double>(c);
    for (size_t i = 0; i < c; i++) var += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(c);
    for (size_t i = 0; i < c; i++) y[row + i] = (x[row + i] - mean) / std::sqrt(var + 1e-5) * weight[i] + bias[i];
  }
  return y;
}

std::vector<double> GptReference::linear(const std::vector<double>& x, const std::string& name) const {
  const std::vector<double>&weight = parameter(name + ".weight"), &bias = parameter(name + ".bias");
  const size_t out = bias.size(), in = weight.size() / out;
  std::vector<double> y;
  for (size_t row = 0; row < x.size(); row += in)
    for (size_t o = 0; o < out; o++) {
      double sum = bias[o];
      for (size_t i = 0; i < in; i++) sum += x[row + i] * weight[o * in + i];
      y.push_back(sum);
    }
  return y;
}

std::vector<double> GptReference::forward(std::span<const float> input, int64_t tokens) const {
  const auto t_count = static_cast<size_t>(tokens), c = static_cast<size_t>(channels_),
             d = c / static_cast<size_t>(heads_);
  const std::vector<double> x(input.begin(), input.begin() + static_cast<ptrdiff_t>(t_count * c));
  const std::vector<double> qkv = linear(layer_norm(x, "ln_1"), "c_attn");
  std::vector<double> attended(t_count * c);
  for (size_t head = 0; head < c; head += d)
    for (size_t t = 0; t < t_count; t++) {
      std::vector<double> p(t + 1);
      double total = 0;
      for (size_t s = 0; s <= t; s++) {
        double dot = 0;
        for (size_t i = 0; i < d; i++) dot += qkv[t * 3 * c + head + i] * qkv[s * 3 * c + c + head + i];
        total += p[s] = std::exp(dot / std::sqrt(static_cast<double>(d)));
      }
      for (size_t s = 0; s <= t; s++)
        for (size_t i = 0; i < d; i++) attended[t * c + head + i] += p[s] / total * qkv[s * 3 * c + 2 * c + head + i];
    }
  std::vector<double> y = linear(attended, "attn_proj");
  for (size_t i = 0; i < y.size(); i++) y[i] += x[i];
  std::vector<double> hidden = linear(layer_norm(y, "ln_2"), "c_fc");
  for (double& v : hidden) v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
  const std::vector<double> mlp = linear(hidden, "mlp_proj");
  for (size_t i = 0; i < y.size(); i++) y[i] += mlp[i];
  return y;
}

}  // namespace tg::bench
