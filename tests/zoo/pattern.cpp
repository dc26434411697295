#include "zoo/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/nn/state_file.h"

namespace tg::zoo {
namespace {

std::filesystem::path recorded(std::string_view file) {
  return std::filesystem::path(TG_TESTS_DIR) / "zoo" / "expected" / file;
}

std::vector<float> uniform(std::string_view name, int64_t count) {
  uint32_t seed = 2166136261u;
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 16777619u;
  std::vector<float> out(static_cast<size_t>(count));
  for (uint32_t i = 0; i < out.size(); i++) {
    uint32_t x = i * 0x9E3779B9u + seed;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    x ^= x >> 16;
    out[i] = static_cast<float>(x >> 8) * 0x1p-23f - 1;
  }
  return out;
}

std::vector<int64_t> sizes(const Tensor& t) {
  std::vector<int64_t> out;
  for (int i = 0; i < t.ndim(); i++) out.push_back(t.shape(i));
  return out;
}

bool is_scale(std::string_view last) {
  for (const char* word : {"weight", "gamma", "scale"})
    if (last.find(word) != std::string_view::npos) return true;
  return false;
}

/// Returns offset and factor of the numbers in [-1, 1) for a weight.
std::pair<float, float> range_of(std::string_view name, const std::vector<int64_t>& shape) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last == "running_var") return {1.f, .5f};
  if (shape.size() <= 1) return {is_scale(last) ? 1.f : 0.f, .1f};
  int64_t fan_in = 1;
  for (size_t i = 1; i < shape.size(); i++) fan_in *= shape[i];
  return {0.f, std::sqrt(3.f / static_cast<float>(fan_in))};
}

/// Returns at most 512 values, evenly spaced, as the scripts choose them.
Tensor sampled(const Tensor& t, int64_t kept) {
  const Tensor flat = t.flatten();
  const int64_t n = flat.shape(0);
  return n == kept ? flat : flat[Slice(0, n, (n + 511) / 512)];
}

struct Samples {
  std::vector<double> got, expected;
};
/// Reads what was recorded, after a check that the shape is that of `got`; throws where it is not.
Samples samples(std::string_view file, std::string_view key, const Tensor& got) {
  const nn::StateDict all = nn::safe_load(recorded(std::string(file) + ".safetensors"));
  const std::vector<int64_t> shape = all.at(std::string(key) + ".shape").to_vector<int64_t>();
  TG_CHECK(ShapeError, sizes(got) == shape, file, ": ", key, " has another shape than the one recorded");
  Samples out;
  out.expected = all.at(key).cast(dtypes::float64).to_vector<double>();
  out.got = sampled(got, static_cast<int64_t>(out.expected.size())).cast(dtypes::float64).to_vector<double>();
  return out;
}

double root_mean_square(const std::vector<double>& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(1, values.size())));
}

}  // namespace

Tensor pattern(std::string_view name, const Shape& shape) {
  const Tensor like = Tensor::empty(shape);
  return Tensor::from(uniform(name, like.numel()), shape);
}

Tensor numbers(std::string_view name, int64_t below, const Shape& shape) {
  std::vector<int64_t> out;
  for (const float u : uniform(name, Tensor::empty(shape).numel()))
    out.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::floor((u + 1.0) * (static_cast<double>(below) / 2))), 0,
                                      below - 1));
  return Tensor::from(out, shape);
}

void give_weights(const nn::StateDict& weights) {
  nn::StateDict values;
  for (const auto& [name, t] : weights) {
    if (!t.dtype().is_float()) continue;
    const std::vector<int64_t> shape = sizes(t);
    const auto [offset, factor] = range_of(name, shape);
    std::vector<float> value = uniform(name, t.numel());
    for (float& v : value) v = offset + factor * v;
    values.emplace_back(name, Tensor::from(value, t.shape()));
  }
  nn::load_state_dict(weights, values, {.strict = false});
}

void expect_recorded(std::string_view file, std::string_view key, const Tensor& got, double tolerance) {
  const Samples s = samples(file, key, got);
  for (size_t i = 0; i < s.expected.size(); i++)
    ASSERT_NEAR(s.got[i], s.expected[i], tolerance * std::max(std::abs(s.expected[i]), root_mean_square(s.expected)))
        << file << ": " << key << ", sample " << i;
}

void expect_gradients(std::string_view file, const nn::StateDict& weights, const Tensor& output, double tolerance) {
  const nn::StateDict all = nn::safe_load(recorded(std::string(file) + ".safetensors"));
  Tensors asked;
  std::vector<std::string> keys;
  for (const auto& [name, t] : weights) {
    if (!all.contains("gradient." + name)) continue;
    asked.push_back(t);
    keys.push_back("gradient." + name);
  }
  ASSERT_FALSE(asked.empty()) << file << " records no gradients of these weights";
  const Tensors got = output.gradient(asked, pattern("output.gradient", output.shape()));
  realize(got);
  for (size_t i = 0; i < got.size(); i++) {
    Samples s = samples(file, keys[i], got[i]);
    const double norm = root_mean_square(s.expected);
    for (size_t k = 0; k < s.got.size(); k++) s.got[k] -= s.expected[k];
    EXPECT_LE(root_mean_square(s.got), tolerance * norm) << file << ": " << keys[i];
  }
}

void expect_names(std::string_view file, const nn::StateDict& weights) {
  std::set<std::string> expected, got;
  std::ifstream in(recorded(std::string(file) + ".names"));
  for (std::string line; std::getline(in, line);) expected.insert(line);
  ASSERT_FALSE(expected.empty()) << file << ".names";
  for (const auto& [name, t] : weights) {
    std::string line = name;
    for (const int64_t size : sizes(t)) line += " " + std::to_string(size);
    got.insert(line);
  }
  EXPECT_EQ(got, expected) << file;
}

}  // namespace tg::zoo
