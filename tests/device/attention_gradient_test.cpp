/// \file Gradients of attention with scores that are not stored: the numbers of float64, kernels, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "normal.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();

using test::normal;

bool fuses() { return !env::EAGER && Device::default_name().starts_with("CPU"); }

/// Attention of `heads` heads, `group` of which share keys and values, and its gradients for a loss sum(o * g), in
/// float64.
struct Case {
  int64_t heads = 8, rows = 384, over = 384, inner = 16, columns = 16, group = 1;
  DType type = dtypes::float32;
  std::function<double(int64_t, int64_t)> mask{};  // added to the score of a row and a key
  Tensor q{}, k{}, v{}, g{};
  std::vector<double> o{}, dq{}, dk{}, dv{}, dmask{};

  Tensor make(int64_t h, int64_t n, int64_t d, uint32_t seed) const {
    return Tensor::from(normal(h * n * d, seed), Shape{1, h, n, d}).cast(type).realize();
  }
  Case& fill() {
    q = make(heads, rows, inner, 1);
    k = make(heads / group, over, inner, 2);
    v = make(heads / group, over, columns, 3);
    g = make(heads, rows, columns, 4);
    for (Tensor* t : {&q, &k, &v}) t->requires_grad_();
    const auto numbers = [](const Tensor& t) { return t.cast(dtypes::float32).to_vector<float>(); };
    const std::vector<float> Q = numbers(q), K = numbers(k), V = numbers(v), G = numbers(g);
    o.assign(G.size(), 0);
    dq.assign(Q.size(), 0);
    dk.assign(K.size(), 0);
    dv.assign(V.size(), 0);
    dmask.assign(static_cast<size_t>(rows * over), 0);
    const double scale = 1 / std::sqrt(static_cast<double>(inner));
    std::vector<double> p(static_cast<size_t>(over)), dp(p.size());
    const auto at = [](auto& x, int64_t row, int64_t width) { return x.data() + row * width; };
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < rows; i++) {
        const int64_t r = h * rows + i, shared = h / group * over;
        double most = -kInf, total = 0, mean = 0;
        for (int64_t j = 0; j < over; j++) {
          double s = 0;
          for (int64_t c = 0; c < inner; c++)
            s += static_cast<double>(at(Q, r, inner)[c]) * at(K, shared + j, inner)[c];
          p[static_cast<size_t>(j)] = s = s * scale + (mask ? mask(i, j) : 0);
          most = std::max(most, s);
        }
        for (double& x : p) total += x = std::exp(x - most);
        for (int64_t j = 0; j < over; j++) {
          const double x = p[static_cast<size_t>(j)] /= total;
          double& slope = dp[static_cast<size_t>(j)] = 0;
          for (int64_t c = 0; c < columns; c++) {
            at(o, r, columns)[c] += x * at(V, shared + j, columns)[c];
            at(dv, shared + j, columns)[c] += x * at(G, r, columns)[c];
            slope += static_cast<double>(at(G, r, columns)[c]) * at(V, shared + j, columns)[c];
          }
          mean += x * slope;
        }
        for (int64_t j = 0; j < over; j++) {
          const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - mean);
          dmask[static_cast<size_t>(i * over + j)] += ds;
          for (int64_t c = 0; c < inner; c++) {
            at(dq, r, inner)[c] += ds * scale * at(K, shared + j, inner)[c];
            at(dk, shared + j, inner)[c] += ds * scale * at(Q, r, inner)[c];
          }
        }
      }
    return *this;
  }
  void expect_close(const Tensor& got, const std::vector<double>& want, const char* name) const {
    ASSERT_EQ(got.dtype(), type) << name;
    const std::vector<float> x = got.cast(dtypes::float32).to_vector<float>();
    ASSERT_EQ(x.size(), want.size()) << name;
    const double rounding = type == dtypes::float32 ? 0 : std::ldexp(1.0, -1 - finfo(type).mantissa);
    // What arrives of o in the gradients of q and k is rounded.
    const double absolute = type == dtypes::float32 ? 2e-5 : name[0] == 'o' ? 1e-5 : 8 * rounding;
    for (size_t i = 0; i < x.size(); i++)
      ASSERT_NEAR(x[i], want[i], absolute + 2 * rounding * std::abs(want[i])) << name << ' ' << i;
  }
  /// Forward and backward at once; the number of kernels.
  int64_t run(const std::function<Tensor()>& attend) const {
    const int64_t before = GlobalCounters::kernels;
    const Tensor out = attend();
    Tensors all = out.gradient({q, k, v}, g);
    all.push_back(out);
    realize(all);
    const int64_t kernels = GlobalCounters::kernels - before;
    expect_close(all[3], o, "o");
    expect_close(all[2], dv, "dv");
    expect_close(all[0], dq, "dq");
    expect_close(all[1], dk, "dk");
    return kernels;
  }
  Tensor attend(bool causal = false, const Tensor& m = {}) const {
    return q.scaled_dot_product_attention(k, v, m, 0, causal, group > 1);
  }
};
double below_diagonal(int64_t i, int64_t j) { return j > i ? -kInf : 0; }

/// The result, what it is divided by, the row sums of g o, and three gradients: a kernel each, none of which stores a
/// score.
constexpr int64_t kKernels = 6;

TEST(AttentionGradient, ScoresAreComputedAgain) {
  for (const auto& [h, t, n, d, c] : std::vector<std::array<int64_t, 5>>{{4, 512, 512, 64, 64},
                                                                         {2, 640, 1024, 32, 48},
                                                                         {4, 1000, 333, 16, 32},
                                                                         {3, 613, 613, 16, 16},
                                                                         {32, 197, 197, 16, 32},
                                                                         {4, 2049, 129, 16, 16}})
    for (bool causal : {false, true}) {
      if (!fuses() && d > 16) continue;  // kernels of other tests, slowly
      SCOPED_TRACE(str(h, ' ', t, ' ', n, ' ', d, ' ', c, causal ? " causal" : ""));
      Case a{.heads = h, .rows = t, .over = n, .inner = d, .columns = c};
      if (causal) a.mask = below_diagonal;
      a.fill();
      const int64_t kernels = a.run([&] { return a.attend(causal); });
      if (fuses()) { EXPECT_EQ(kernels, kKernels); }
    }
}

/// A result that was computed before, and read, has the same gradients.
TEST(AttentionGradient, AfterTheResultWasRead) {
  Case a{.mask = below_diagonal};
  a.fill();
  const Tensor out = a.attend(true);
  EXPECT_TRUE(std::isfinite(out.sum().item<double>()));
  const std::vector<float> read = out.to_vector<float>();
  const int64_t before = GlobalCounters::kernels;
  const Tensors all = out.gradient({a.q, a.k, a.v}, a.g);
  realize(all);
  if (fuses()) { EXPECT_LE(GlobalCounters::kernels - before, kKernels); }
  a.expect_close(all[0], a.dq, "dq");
  a.expect_close(all[1], a.dk, "dk");
  a.expect_close(all[2], a.dv, "dv");
}

/// Fewer scores than are worth it stay in the cache.
TEST(AttentionGradient, ShortOnesAreKept) {
  Case a{.heads = 2};
  a.fill();
  const int64_t kernels = a.run([&] { return a.attend(); });
  if (fuses()) { EXPECT_GT(kernels, kKernels); }
}

int64_t bytes_of_step(int64_t length, bool causal) {
  Case a{.heads = 2, .rows = length, .over = length};
  a.q = a.make(2, length, 16, 1);
  a.k = a.make(2, length, 16, 2);
  a.v = a.make(2, length, 16, 3);
  a.g = a.make(2, length, 16, 4);
  const int64_t before = memory_stats().used;
  reset_memory_stats();
  const Tensor out = a.attend(causal);
  realize(out.gradient({a.q, a.k, a.v}, a.g));
  return memory_stats().peak - before;
}
TEST(AttentionGradient, MemoryIsLinear) {
  if (!fuses()) GTEST_SKIP() << "operations run one by one, or a device without kernels in blocks";
  for (bool causal : {false, true}) {
    const int64_t one = bytes_of_step(1024, causal), four = bytes_of_step(4096, causal);
    EXPECT_LE(four, 4.1 * static_cast<double>(one)) << one << (causal ? " causal" : "");
    EXPECT_LE(four, 8 * 2 * 4096 * 16 * 4) << "a few of the inputs' size; the scores would take 128 MiB";
  }
}

TEST(AttentionGradient, Masks) {
  const auto open = [](int64_t i, int64_t j) { return (i * 7 + j * 3) % 5 != 1 && (j < 300 || i > 20); };
  const int64_t n = 413;
  std::vector<int8_t> bits;
  std::vector<float> added;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      bits.push_back(open(i, j));
      added.push_back(static_cast<float>((i * j) % 5));
    }
  const Tensor keep = Tensor::from(bits, Shape{n, n}).cast(dtypes::bool_).realize();
  Tensor bias = Tensor::from(added, Shape{n, n}).realize();
  Case a{.rows = n, .over = n, .mask = [&](int64_t i, int64_t j) { return open(i, j) ? 0 : -kInf; }};
  a.fill();
  const int64_t kernels = a.run([&] { return a.attend(false, keep); });
  Case b{.rows = n, .over = n, .mask = [](int64_t i, int64_t j) { return static_cast<double>((i * j) % 5); }};
  b.fill();
  const int64_t others = b.run([&] { return b.attend(false, bias); });
  if (fuses()) { EXPECT_EQ(kernels, kKernels); }
  if (fuses()) { EXPECT_EQ(others, kKernels); }
  // A mask that is learned gets the gradient of the scores.
  bias.requires_grad_();
  const Tensors all = b.attend(false, bias).gradient({b.q, b.k, b.v, bias}, b.g);
  realize(all);
  b.expect_close(all[0], b.dq, "dq");
  b.expect_close(all[1], b.dk, "dk");
  b.expect_close(all[2], b.dv, "dv");
  b.expect_close(all[3], b.dmask, "dmask");
}

TEST(AttentionGradient, GroupsOfHeads) {
  for (bool causal : {false, true}) {
    Case a{.heads = 12, .rows = 320, .over = 320, .inner = 32, .columns = 32, .group = 3};
    if (causal) a.mask = below_diagonal;
    a.fill();
    const int64_t kernels = a.run([&] { return a.attend(causal); });
    if (fuses()) { EXPECT_EQ(kernels, kKernels); }
  }
}

TEST(AttentionGradient, HalfAndBFloat16) {
  for (DType d : {dtypes::float16, dtypes::bfloat16})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(str(d, causal ? " causal" : ""));
      Case a{.rows = 400, .over = 400, .inner = 32, .columns = 32, .type = d};
      if (causal) a.mask = below_diagonal;
      a.fill();
      const int64_t kernels = a.run([&] { return a.attend(causal); });
      if (fuses()) { EXPECT_EQ(kernels, kKernels + 1); }  // the result is rounded
    }
}

/// As programs write it.
TEST(AttentionGradient, WrittenOut) {
  const int64_t n = 384;
  Case a{.rows = n, .over = n, .mask = below_diagonal};
  a.fill();
  const Tensor keep = Tensor::ones(Shape{n, n}).tril().realize();
  const auto scores = [&] { return a.q.matmul(a.k.transpose(-2, -1)) * (1 / std::sqrt(16.0)); };
  const int64_t filled = a.run([&] { return scores().masked_fill(keep == 0, -kInf).softmax(-1).matmul(a.v); });
  const int64_t added = a.run([&] { return (scores() + Tensor::full({n, n}, -kInf).triu(1)).softmax(-1).matmul(a.v); });
  if (fuses()) { EXPECT_LE(filled, kKernels + 1); }
  if (fuses()) { EXPECT_LE(added, kKernels + 1); }
}

/// The layer: its gradients are as those of its formula, with few more kernels than without attention.
TEST(AttentionGradient, Layer) {
  const int64_t embed = 128, heads = 8, n = 400;
  const nn::MultiheadAttention layer(embed, heads);
  const Tensor x = Tensor::from(normal(n * embed, 5), Shape{1, n, embed}).realize(),
               g = Tensor::from(normal(n * embed, 6), Shape{1, n, embed}).realize();
  reset_memory_stats();
  const int64_t before = memory_stats().used;
  const Tensors all = layer(x, {.causal = true}).gradient({layer.in_proj_weight, layer.out_proj_weight}, g);
  realize(all);
  if (fuses()) { EXPECT_LE(memory_stats().peak - before, 24 * n * embed * 4) << "the scores would take 5 MB"; }
  // The slope along a direction.
  const Tensor d = Tensor::from(normal(3 * embed * embed, 7), Shape{3 * embed, embed}).realize() * 1e-3;
  const auto moved = [&](double by) {
    nn::MultiheadAttention m(
        heads, {layer.in_proj_weight + d * by, layer.in_proj_bias, layer.out_proj_weight, layer.out_proj_bias});
    return (m(x, {.causal = true}) * g).sum().item<double>();
  };
  const double got = (all[0] * d).sum().item<double>(), want = (moved(1) - moved(-1)) / 2;
  EXPECT_NEAR(got, want, 2e-2 * std::abs(want) + 1e-2);
}

/// o is linear in v, with the probabilities that dropout kept.
TEST(AttentionGradient, DropoutKeepsTheSame) {
  Case a{};
  a.fill();
  const nn::Training mode;
  const Tensor out = a.q.scaled_dot_product_attention(a.k, a.v, {}, 0.25, true);
  const Tensors all = out.gradient({a.q, a.k, a.v}, a.g);
  const double forward = (out * a.g).sum().item<double>(), backward = (all[2] * a.v).sum().item<double>();
  EXPECT_NEAR(forward, backward, 1e-3 * std::abs(forward));
  EXPECT_GT(all[0].abs().sum().item<double>(), 0);
}

TEST(AttentionGradient, SecondOrder) {
  Case a{};
  a.fill();
  const Tensor u = a.make(8, 384, 16, 7), w = a.make(8, 384, 16, 8);
  const auto slope = [&](const Tensor& q) {
    return (q.scaled_dot_product_attention(a.k, a.v, {}, 0, true).gradient({q}, a.g)[0] * u).sum();
  };
  const Tensor second = slope(a.q).gradient({a.q, a.k, a.v})[0];
  const double got = (second * w).sum().item<double>();
  constexpr double kStep = 1e-2;
  const auto moved = [&](double by) { return (a.q.detach() + w * by).realize().requires_grad_(); };
  const double want = (slope(moved(kStep)).item<double>() - slope(moved(-kStep)).item<double>()) / (2 * kStep);
  EXPECT_NEAR(got, want, 2e-3 * (1 + std::abs(want)));
}

TEST(AttentionGradient, InJit) {
  Case a{.mask = below_diagonal};
  a.fill();
  auto step = jit([&](const Tensor& q, const Tensor& g) {
    const Tensor out = q.scaled_dot_product_attention(a.k, a.v, {}, 0, true);
    Tensors all = out.gradient({q, a.k, a.v}, g);
    realize(all);
    return all;
  });
  for (int i = 0; i < 4; i++) {
    const Tensors all = step((a.q.detach() * (i == 3 ? 1 : 0.5 * i)).realize(), a.g);
    if (i == 3) {
      a.expect_close(all[0], a.dq, "dq");
      a.expect_close(all[1], a.dk, "dk");
      a.expect_close(all[2], a.dv, "dv");
    }
  }
}

TEST(AttentionGradient, DoesNotDependOnThreads) {
  Case a{.heads = 4, .rows = 611, .over = 500, .mask = below_diagonal};
  a.fill();
  std::vector<std::vector<float>> one;
  for (int threads : {1, 2, 5}) {
    const Context context{{"NUM_CPU_THREADS", threads}};
    const Tensors all = a.attend(true).gradient({a.q, a.k, a.v}, a.g);
    for (size_t i = 0; i < all.size(); i++) {
      const std::vector<float> got = all[i].to_vector<float>();
      if (threads == 1) one.push_back(got);
      EXPECT_EQ(std::memcmp(got.data(), one[i].data(), got.size() * sizeof(float)), 0)
          << i << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tg
