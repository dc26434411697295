/// \file Attention with scores that are not stored: one kernel, the numbers of float64, gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "device/device_facts.h"
#include "normal.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/target/device_traits.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();

using test::normal;

struct Attention {
  int64_t heads = 2, rows = 384, over = 384, inner = 32, columns = 32;
  bool causal = false;
  std::vector<float> q, k, v, mask;
  DType type = dtypes::float32;
  Attention(int64_t h, int64_t t, int64_t n, int64_t d, int64_t c, bool mask_above = false)
      : heads(h),
        rows(t),
        over(n),
        inner(d),
        columns(c),
        causal(mask_above),
        q(normal(h * t * d, 1)),
        k(normal(h * n * d, 2)),
        v(normal(h * n * c, 3)) {}

  /// The same in another type, with values that it can represent.
  Attention in(DType d) const {
    Attention a = *this;
    a.type = d;
    for (std::vector<float>* x : {&a.q, &a.k, &a.v})
      *x = Tensor::from(*x).cast(d).cast(dtypes::float32).to_vector<float>();
    return a;
  }
  Tensor query() const { return Tensor::from(q, Shape{1, heads, rows, inner}).cast(type).realize(); }
  Tensor key() const { return Tensor::from(k, Shape{1, heads, over, inner}).cast(type).realize(); }
  Tensor value() const { return Tensor::from(v, Shape{1, heads, over, columns}).cast(type).realize(); }
  Tensor run(int64_t* kernels = nullptr) const {
    const Tensor a = query(), b = key(), c = value(),
                 m = mask.empty() ? Tensor() : Tensor::from(mask, Shape{rows, over}).realize();
    const int64_t before = GlobalCounters::kernels;
    Tensor out = a.scaled_dot_product_attention(b, c, m, 0, causal).realize();
    if (kernels) *kernels = GlobalCounters::kernels - before;
    return out;
  }
  std::vector<double> probabilities(int64_t h, int64_t i) const {
    std::vector<double> p(static_cast<size_t>(over));
    double most = -kInf, total = 0;
    for (int64_t j = 0; j < over; j++) {
      double s = 0;
      for (int64_t r = 0; r < inner; r++)
        s += static_cast<double>(q[static_cast<size_t>((h * rows + i) * inner + r)]) *
             k[static_cast<size_t>((h * over + j) * inner + r)];
      s /= std::sqrt(static_cast<double>(inner));
      if (causal && j > i) s = -kInf;
      if (!mask.empty()) s += mask[static_cast<size_t>(i * over + j)];
      p[static_cast<size_t>(j)] = s;
      most = std::isnan(most) || std::isnan(s) ? std::nan("") : std::max(most, s);
    }
    if (!mask.empty() && most == -kInf) return std::vector<double>(p.size(), 0.0);  // masked whole
    for (double& s : p) total += s = std::exp(s - most);
    for (double& s : p) s /= total;
    return p;
  }
  void expect(const Tensor& result, int64_t step = 7) const {
    ASSERT_EQ(result.dtype(), type);
    const std::vector<float> got = result.cast(dtypes::float32).to_vector<float>();
    const double rounding = type == dtypes::float32 ? 0 : std::ldexp(1.0, -1 - finfo(type).mantissa);  // of the result
    ASSERT_EQ(got.size(), static_cast<size_t>(heads * rows * columns));
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < rows; i += step) {
        const std::vector<double> p = probabilities(h, i);
        for (int64_t d = 0; d < columns; d++) {
          double want = 0;
          for (int64_t j = 0; j < over; j++)
            want += p[static_cast<size_t>(j)] * v[static_cast<size_t>((h * over + j) * columns + d)];
          const double x = got[static_cast<size_t>((h * rows + i) * columns + d)];
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(x)) << h << ' ' << i << ' ' << d << ": " << x;
          } else if (std::isinf(want)) {
            ASSERT_EQ(x, want) << h << ' ' << i << ' ' << d;
          } else {
            ASSERT_NEAR(x, want, 2e-6 + rounding * std::abs(want)) << h << ' ' << i << ' ' << d;
          }
        }
      }
  }
};

TEST(AttentionOptions, NamesInBracesAreThoseOfTheOptions) {
  const Attention a(1, 4, 4, 8, 8, true);
  const Tensor q = a.query(), k = a.key(), v = a.value();
  a.expect(q.scaled_dot_product_attention(k, v, {.is_causal = true}), 1);
  const Tensor below = Tensor::ones(4, 4, {.dtype = dtypes::bool_}).tril();
  a.expect(q.scaled_dot_product_attention(k, v, {.mask = below}), 1);
  a.expect(q.scaled_dot_product_attention(k, v, below), 1);
  a.expect(q.scaled_dot_product_attention(k, v, {}, 0, true), 1);
  Attention whole = a;
  whole.causal = false;
  whole.expect(q.scaled_dot_product_attention(k, v), 1);
  whole.expect(q.scaled_dot_product_attention(k, v, {}), 1);

  const Tensor x = Tensor::ones(1, 1, 3, 3), w = Tensor::ones(1, 1, 3, 3);
  EXPECT_EQ(x.conv2d(w, {.padding = 1}).to_vector<float>(), (std::vector<float>{4, 6, 4, 6, 9, 6, 4, 6, 4}));
  EXPECT_EQ(x.conv2d(w, Tensor({2.0f}), {.padding = 1}).to_vector<float>()[4], 11);
  EXPECT_EQ(x.conv_transpose2d(w, {.stride = 2}).shape(), (Shape{1, 1, 7, 7}));
  EXPECT_EQ(x.flatten().reshape(3, 3).nll_loss(Tensor({0, 1, 2}), {.reduction = Reduction::kSum}).item<float>(), -3);
}

// With IMAGE, products read images, each by itself.
bool fuses() { return !env::EAGER && env::IMAGE.get() <= 0 && device_traits(Device::get().kind()).attention_kernels; }

TEST(OnlineAttention, IsOneKernelThatStoresNoScores) {
  for (bool causal : {false, true}) {
    const Attention a(2, 512, 512, 64, 64, causal);
    int64_t kernels = 0;
    const Tensor out = a.run(&kernels);
    if (fuses()) { EXPECT_EQ(kernels, 1); }
    a.expect(out, 19);
  }
  const Attention small(1, 128, 128, 16, 16);  // 64 KB of scores: little to win
  int64_t kernels = 0;
  small.expect(small.run(&kernels));
  if (env::EAGER) return;
  if (has_row_groups()) EXPECT_LT(kernels, 5);  // the rows of the scores are one kernel
  else EXPECT_EQ(kernels, 5);
}

/// A product stores the values as their kernel reads them; what is in memory is not copied.
TEST(OnlineAttention, ComputedValuesAreStoredInRows) {
  if (!fuses()) GTEST_SKIP() << "no kernel of its own for attention";
  const auto stores = [](const Tensor& v) {
    const GraphScope scope;
    const Tensor q = Tensor::empty(v.shape()), out = q.scaled_dot_product_attention(Tensor::empty(v.shape()), v);
    for (UOp u : out.uop().toposort())
      if (u.is(Ops::CONTIGUOUS)) return true;
    return false;
  };
  const auto heads = [](const Tensor& t) { return t.unflatten(-1, {2, 32}).transpose(1, 2); };
  const Tensor w = Tensor::empty({64, 64}), bias = Tensor::empty({64});
  const Tensor large = Tensor::empty({1, 1024, 64}), small = Tensor::empty({1, 128, 64});
  EXPECT_TRUE(stores(heads(large.linear(w, bias))));
  EXPECT_FALSE(stores(heads(large)));
  EXPECT_FALSE(stores(heads(small.linear(w, bias)))) << "the scores may be stored";
}

/// Decoding: one query, or those of heads that share keys, against a cache. The threads of a group share the keys.
TEST(OnlineAttention, FewQueriesOfGroupsAreOneKernel) {
  for (DType d : {dtypes::float32, dtypes::float16})
    for (const auto& [shared, rows, over] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 1000}, {4, 1, 1000}, {1, 3, 257}, {2, 1, 64}}) {
      SCOPED_TRACE(str(d, ' ', shared, ' ', rows, ' ', over));
      const Attention few = Attention(2, rows, over, 32, 32).in(d);
      Attention a = Attention(2 * shared, rows, over, 32, 32).in(d);
      const int64_t size = over * 32;
      for (int64_t h = 0; h < a.heads; h++)
        for (int64_t i = 0; i < size; i++) {
          a.k[static_cast<size_t>(h * size + i)] = few.k[static_cast<size_t>(h / shared * size + i)];
          a.v[static_cast<size_t>(h * size + i)] = few.v[static_cast<size_t>(h / shared * size + i)];
        }
      const Tensor q = a.query(), k = few.key(), v = few.value();
      const int64_t before = GlobalCounters::kernels;
      const Tensor out = q.scaled_dot_product_attention(k, v, {}, 0, false, shared > 1).realize();
      if (fuses() && has_row_groups()) { EXPECT_EQ(GlobalCounters::kernels - before, 1); }
      a.expect(out, 1);
    }
}

TEST(OnlineAttention, Shapes) {
  for (const auto& [h, t, n, d, c] : std::vector<std::array<int64_t, 5>>{{3, 320, 448, 24, 48},
                                                                         {1, 96, 4096, 8, 16},
                                                                         {1, 2048, 192, 7, 80},
                                                                         {5, 256, 256, 64, 128},
                                                                         {2, 500, 500, 16, 16},
                                                                         {1, 333, 999, 24, 48},
                                                                         {1, 77, 4099, 8, 16},
                                                                         {2, 1023, 130, 16, 32},
                                                                         {1, 1024, 300, 16, 20}}) {
    SCOPED_TRACE(str(h, ' ', t, ' ', n, ' ', d, ' ', c));
    const Attention a(h, t, n, d, c), causal(h, t, n, d, c, true);
    a.expect(a.run(), 31);
    causal.expect(causal.run(), 31);
  }
}

/// Lengths that end within a tile of rows and within a block of keys.
TEST(OnlineAttention, OddLengthsAreOneKernel) {
  for (const auto& [h, t, n] :
       std::vector<std::array<int64_t, 3>>{{8, 197, 197}, {1, 1000, 1000}, {2, 65, 2049}, {1, 2049, 129}})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(str(h, ' ', t, ' ', n, causal ? " causal" : ""));
      const Attention a(h, t, n, 16, 32, causal);
      int64_t kernels = 0;
      const Tensor out = a.run(&kernels);
      if (fuses()) { EXPECT_EQ(kernels, 1); }
      a.expect(out, 3);
    }
}

/// A cache of keys that grows: one kernel for all lengths, with a mask that follows.
TEST(OnlineAttention, VariableNumberOfKeys) {
  const int64_t rows = 96, most = 1024, inner = 16;
  const Variable variable("online_start", 1, most - rows);
  for (bool causal : {false, true})
    for (int64_t start : {1, 31, 160, 415, 416, 900}) {
      SCOPED_TRACE(str(start, causal ? " causal" : ""));
      Attention a(3, rows, start + rows, inner, inner);
      const std::vector<float> keys = normal(a.heads * most * inner, 2), values = normal(a.heads * most * inner, 3);
      for (int64_t h = 0; h < a.heads; h++)
        for (int64_t i = 0; i < a.over * inner; i++) {
          a.k[static_cast<size_t>(h * a.over * inner + i)] = keys[static_cast<size_t>(h * most * inner + i)];
          a.v[static_cast<size_t>(h * a.over * inner + i)] = values[static_cast<size_t>(h * most * inner + i)];
        }
      const BoundVariable bound = variable.bind(start), n = bound + rows;
      const Tensor q = a.query();
      const auto cached = [&](const std::vector<float>& x) {
        return Tensor::from(x, Shape{1, a.heads, most, inner})
            .realize()
            .shrink({{0, 1}, {0, a.heads}, {0, n}, {0, inner}});
      };
      const Tensor k = cached(keys), v = cached(values);
      Tensor mask;
      if (causal) {
        mask = Tensor::full({rows, n}, -kInf).triu(bound + 1);
        a.mask.assign(static_cast<size_t>(rows * a.over), 0.f);
        for (int64_t i = 0; i < rows; i++)
          for (int64_t j = i + start + 1; j < a.over; j++)
            a.mask[static_cast<size_t>(i * a.over + j)] = -std::numeric_limits<float>::infinity();
      }
      const int64_t before = GlobalCounters::kernels;
      const Tensor out = q.scaled_dot_product_attention(k, v, mask).realize();
      if (fuses()) { EXPECT_EQ(GlobalCounters::kernels - before, causal ? 2 : 1); }  // all heads read one mask
      a.expect(out, 5);
    }
}

TEST(OnlineAttention, MasksAndNumbersThatAreNone) {
  for (int64_t n : {384, 413}) {
    SCOPED_TRACE(n);
    Attention a(2, n, n, 16, 16);
    a.mask.assign(static_cast<size_t>(a.rows * a.over), 0.f);
    for (int64_t i = 0; i < a.rows; i++)
      for (int64_t j = 0; j < a.over; j++) {
        const bool closed = i == 21 || (i == 42 && j < 300) || (i == 63 && j > 3) || (i > 300 && j < i - 280);
        a.mask[static_cast<size_t>(i * a.over + j)] =
            closed ? -std::numeric_limits<float>::infinity() : static_cast<float>((i * j) % 5);
      }
    a.expect(a.run());
    for (bool causal : {false, true})
      for (float x : {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
        for (int which = 0; which < 3; which++) {
          Attention b(2, n, n, 16, 16, causal);
          (which == 0 ? b.q : which == 1 ? b.k : b.v)[static_cast<size_t>((n - 34) * 16 + 5)] = x;
          b.expect(b.run());
          if (HasFatalFailure()) FAIL() << x << " in " << which << (causal ? " causal" : "");
        }
  }
}

/// Scores, powers and sums of narrow inputs are float32; the result alone is rounded.
TEST(OnlineAttention, HalfAndBFloat16) {
  for (DType d : {dtypes::float16, dtypes::bfloat16})
    for (const auto& [h, t, n] : std::vector<std::array<int64_t, 3>>{{2, 512, 512}, {1, 613, 999}})
      for (const char* mask : {"", "causal", "bool", "added"}) {
        SCOPED_TRACE(str(d, ' ', t, ' ', n, ' ', mask));
        Attention a = Attention(h, t, n, 32, 48, std::string(mask) == "causal").in(d);
        Tensor m;
        std::vector<int8_t> open;
        for (int64_t i = 0; i < t * n && (*mask == 'b' || *mask == 'a'); i++) {
          const bool closed = i % 7 == 3 || (i / n > 100 && i % n < 60);
          open.push_back(!closed);
          a.mask.push_back(*mask == 'a' ? static_cast<float>(i % 5) : closed ? -INFINITY : 0.f);
        }
        if (*mask == 'b') m = Tensor::from(open, Shape{t, n}).cast(dtypes::bool_).realize();
        if (*mask == 'a') m = Tensor::from(a.mask, Shape{t, n}).cast(d).realize();
        const Tensor q = a.query(), k = a.key(), v = a.value();
        const int64_t before = GlobalCounters::kernels;
        const Tensor out = q.scaled_dot_product_attention(k, v, m, 0, a.causal).realize();
        if (fuses()) { EXPECT_EQ(GlobalCounters::kernels - before, 1); }
        a.expect(out, 29);
      }
}

/// A prompt in chunks of all lengths: one kernel, which reads a part of a cache that grows.
TEST(OnlineAttention, VariableNumberOfRows) {
  const int64_t most = 512, inner = 16;
  const Variable chunk("online_chunk", 1, 256), begin("online_begin", 0, most - 256);
  for (DType d : {dtypes::float32, dtypes::float16})
    for (const auto& [rows, start] :
         std::vector<std::pair<int64_t, int64_t>>{{256, 0}, {1, 0}, {7, 100}, {128, 128}, {129, 255}, {200, 33}}) {
      SCOPED_TRACE(str(d, ' ', rows, " from ", start));
      Attention whole = Attention(4, 256, most, inner, inner).in(d);
      const Tensor q = whole.query(), k = whole.key(), v = whole.value();
      Attention a = Attention(4, rows, start + rows, inner, inner).in(d);
      auto part = [&](std::vector<float>& to, const std::vector<float>& from, int64_t n, int64_t all) {
        for (int64_t h = 0; h < a.heads; h++)
          for (int64_t i = 0; i < n * inner; i++)
            to[static_cast<size_t>(h * n * inner + i)] = from[static_cast<size_t>(h * all * inner + i)];
      };
      part(a.q, whole.q, rows, 256);
      part(a.k, whole.k, a.over, most);
      part(a.v, whole.v, a.over, most);
      a.mask.assign(static_cast<size_t>(rows * a.over), 0.f);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + start + 1; j < a.over; j++)
          a.mask[static_cast<size_t>(i * a.over + j)] = -std::numeric_limits<float>::infinity();
      const BoundVariable bound = chunk.bind(rows), s = begin.bind(start);
      const GraphScope graph;
      const SInt n = bound, keys = SInt(s.uop() + bound.uop());
      const auto first = [&](const Tensor& t, const SInt& count) {
        return t.shrink({{0, 1}, {0, a.heads}, {0, count}, {0, inner}});
      };
      const Tensor mask = Tensor::full({n, keys}, -kInf, {.dtype = d}).triu(s + 1);
      const int64_t before = GlobalCounters::kernels;
      const Tensor out = first(q, n).scaled_dot_product_attention(first(k, keys), first(v, keys), mask).realize();
      if (fuses()) { EXPECT_EQ(GlobalCounters::kernels - before, 2); }  // all heads read one mask
      a.expect(out, 3);
    }
}

/// Several heads of queries to one of keys: no keys are copied, in no type.
TEST(OnlineAttention, GroupsOfHeadsAreOneKernel) {
  for (DType d : {dtypes::float32, dtypes::float16, dtypes::bfloat16})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(str(d, causal ? " causal" : ""));
      const Attention few = Attention(2, 320, 320, 32, 32).in(d);
      Attention a = Attention(6, 320, 320, 32, 32, causal).in(d);
      for (int64_t h = 0; h < a.heads; h++)
        for (int64_t i = 0; i < 320 * 32; i++) {
          a.k[static_cast<size_t>(h * 320 * 32 + i)] = few.k[static_cast<size_t>(h / 3 * 320 * 32 + i)];
          a.v[static_cast<size_t>(h * 320 * 32 + i)] = few.v[static_cast<size_t>(h / 3 * 320 * 32 + i)];
        }
      const Tensor q = a.query(), k = few.key(), v = few.value();
      const int64_t before = GlobalCounters::kernels;
      const Tensor out = q.scaled_dot_product_attention(k, v, {}, 0, causal, true).realize();
      if (fuses()) { EXPECT_EQ(GlobalCounters::kernels - before, 1); }
      a.expect(out, 11);
    }
}

/// The layer does in half what it does in float32, rounded: as many kernels, scores and powers in float32.
TEST(OnlineAttention, LayerOfHalf) {
  const int64_t embed = 64, heads = 4, n = 384;
  const nn::MultiheadAttention layer(embed, heads);
  Tensors wide, narrow;
  for (const Tensor& w : {layer.in_proj_weight, layer.in_proj_bias, layer.out_proj_weight, layer.out_proj_bias}) {
    narrow.push_back(w.cast(dtypes::float16).realize());
    wide.push_back(narrow.back().cast(dtypes::float32).realize());
  }
  const Tensor x = Tensor::from(normal(2 * n * embed, 5), Shape{2, n, embed}).cast(dtypes::float16).realize();
  std::vector<float> result[2];
  int64_t kernels[2];
  for (int half : {0, 1}) {
    const Tensor input = half ? x : x.cast(dtypes::float32).realize();
    const nn::MultiheadAttention m(heads, half ? narrow : wide);
    const int64_t before = GlobalCounters::kernels;
    const Tensor y = m(input, {.causal = true}).realize();
    kernels[half] = GlobalCounters::kernels - before;
    EXPECT_EQ(y.dtype(), half ? dtypes::float16 : dtypes::float32);
    result[half] = y.cast(dtypes::float32).to_vector<float>();
  }
  if (fuses()) { EXPECT_EQ(kernels[0], kernels[1]); }
  for (size_t i = 0; i < result[0].size(); i++)
    ASSERT_NEAR(result[0][i], result[1][i], 4e-3) << i;  // projections are rounded to 11 bits
}

TEST(OnlineAttention, Gradients) {
  const Attention a(2, 384, 384, 16, 16, true);
  Tensor q = a.query(), k = a.key(), v = a.value();
  for (Tensor* t : {&q, &k, &v}) t->requires_grad_();
  const std::vector<float> w = normal(a.heads * a.rows * a.columns, 9);
  const Tensor weights = Tensor::from(w, Shape{1, a.heads, a.rows, a.columns}).realize();
  const Tensor out = q.scaled_dot_product_attention(k, v, {}, 0, true);
  (out * weights).sum().backward();
  realize(out, q.grad(), k.grad(), v.grad());
  a.expect(out);
  // dv_jd = sum_i p_ij w_id, dq = sum_j p_ij (dp_ij - sum_j p_ij dp_ij) k_j / sqrt(d)
  const std::vector<float> dv = v.grad().to_vector<float>(), dq = q.grad().to_vector<float>();
  std::vector<double> want_v(dv.size(), 0.0);
  for (int64_t h = 0; h < a.heads; h++)
    for (int64_t i = 0; i < a.rows; i++) {
      const std::vector<double> p = a.probabilities(h, i);
      std::vector<double> dp(p.size(), 0.0);
      double mean = 0;
      for (int64_t j = 0; j < a.over; j++) {
        for (int64_t d = 0; d < a.columns; d++) {
          const double g = w[static_cast<size_t>((h * a.rows + i) * a.columns + d)];
          want_v[static_cast<size_t>((h * a.over + j) * a.columns + d)] += p[static_cast<size_t>(j)] * g;
          dp[static_cast<size_t>(j)] += g * a.v[static_cast<size_t>((h * a.over + j) * a.columns + d)];
        }
        mean += p[static_cast<size_t>(j)] * dp[static_cast<size_t>(j)];
      }
      for (int64_t r = 0; r < a.inner; r++) {
        double want = 0;
        for (int64_t j = 0; j < a.over; j++)
          want += p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - mean) *
                  a.k[static_cast<size_t>((h * a.over + j) * a.inner + r)] / 4;
        ASSERT_NEAR(dq[static_cast<size_t>((h * a.rows + i) * a.inner + r)], want, 2e-5) << h << ' ' << i << ' ' << r;
      }
    }
  for (size_t i = 0; i < dv.size(); i++) ASSERT_NEAR(dv[i], want_v[i], 2e-5) << i;
}

/// Heads that share keys, operands that are computed on the way, results that are used further, and a result stored
/// over the query.
TEST(OnlineAttention, InPrograms) {
  const Attention a(4, 384, 384, 16, 16, true);
  const Tensor q = a.query(), k = a.key(), v = a.value();
  const Tensor plain = a.run();
  Attention scaled = a;
  for (float& x : scaled.q) x *= 2;
  for (float& x : scaled.v) x += 1;
  scaled.expect((q * 2).scaled_dot_product_attention(k, v + 1, {}, 0, true));
  const std::vector<float>
      want = plain.transpose(1, 2).reshape(Shape{a.rows, a.heads * a.columns}).contiguous().to_vector<float>(),
      got = q.scaled_dot_product_attention(k, v, {}, 0, true)
                .transpose(1, 2)
                .reshape(Shape{a.rows, a.heads * a.columns})
                .to_vector<float>();
  ASSERT_EQ(want, got);
  const Tensor
      few = Tensor::from(std::vector<float>(a.k.begin(), a.k.begin() + 2 * 384 * 16), Shape{1, 2, 384, 16}).realize(),
      shared =
          Tensor::from(std::vector<float>(a.v.begin(), a.v.begin() + 2 * 384 * 16), Shape{1, 2, 384, 16}).realize();
  Attention grouped = a;
  for (int64_t h = 3; h >= 0; h--)
    for (int64_t i = 0; i < 384 * 16; i++)
      for (auto* x : {&grouped.k, &grouped.v})
        (*x)[static_cast<size_t>(h * 384 * 16 + i)] = (*x)[static_cast<size_t>(h / 2 * 384 * 16 + i)];
  grouped.expect(q.scaled_dot_product_attention(few, shared, {}, 0, true, true));
  Tensor own = a.query();
  own.assign(own.scaled_dot_product_attention(k, v, {}, 0, true)).realize();
  a.expect(own);
}

TEST(OnlineAttention, ResultsDoNotDependOnThreads) {
  for (const auto& [heads, t, n] : std::vector<std::array<int64_t, 3>>{{1, 640, 512}, {6, 640, 512}, {3, 611, 500}}) {
    const Attention a(heads, t, n, 16, 32, true);
    std::vector<float> one;
    for (int threads : {1, 2, 3, 5}) {
      const Context context{{"NUM_CPU_THREADS", threads}};
      const std::vector<float> got = a.run().to_vector<float>();
      if (threads == 1) one = got;
      EXPECT_EQ(std::memcmp(got.data(), one.data(), one.size() * sizeof(float)), 0) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tg
