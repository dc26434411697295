/// \file Windows with every kernel, stride, padding and dilation, and their gradients, against loops over elements.
/// Values are small whole numbers, so sums are exact.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>

#include "device/nn_helpers.h"
#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"

namespace tg {
namespace {
struct Axis {
  int64_t size, kernel, step, pad, dilation;
  int64_t out() const { return (size + 2 * pad - dilation * (kernel - 1) - 1) / step + 1; }
};
struct Case {
  Axis y, x;
  std::string text() const {
    std::string s;
    for (const Axis& a : {y, x})
      s += str("size ", a.size, " kernel ", a.kernel, " step ", a.step, " pad ", a.pad, " dilation ", a.dilation, "; ");
    return s;
  }
  /// f(flat output, flat tap, flat input or -1 in the padding)
  template <class F> void each(F f) const {
    for (int64_t oy = 0; oy < y.out(); oy++)
      for (int64_t ox = 0; ox < x.out(); ox++)
        for (int64_t ky = 0; ky < y.kernel; ky++)
          for (int64_t kx = 0; kx < x.kernel; kx++) {
            const int64_t iy = oy * y.step + ky * y.dilation - y.pad, ix = ox * x.step + kx * x.dilation - x.pad;
            const bool inside = iy >= 0 && iy < y.size && ix >= 0 && ix < x.size;
            f(static_cast<size_t>(oy * x.out() + ox), static_cast<size_t>(ky * x.kernel + kx),
              inside ? iy * x.size + ix : -1);
          }
  }
};

/// Sizes that leave a rest, steps below, at and beyond the kernel; `pooling`: padding of at most half a window.
std::vector<Case> cases(bool pooling, size_t n) {
  std::mt19937 random(7);
  auto below = [&](int64_t k) { return static_cast<int64_t>(random() % static_cast<uint32_t>(k)); };
  auto axis = [&] {
    Axis a{0, 1 + below(5), 1 + below(3), 0, 1 + below(4) / 3};
    a.pad = below(pooling ? a.kernel / 2 + 1 : a.kernel);
    a.size = a.dilation * (a.kernel - 1) + 1 + below(9);
    return a;
  };
  std::vector<Case> out{{{9, 3, 2, 1, 1}, {12, 3, 2, 1, 1}},
                        {{13, 7, 2, 3, 1}, {14, 7, 2, 3, 1}},
                        {{8, 1, 2, 0, 1}, {7, 1, 2, 0, 1}},
                        {{11, 5, 3, 2, 1}, {10, 4, 3, 1, 1}},
                        {{9, 2, 3, 1, 1}, {34, 3, 2, 1, 1}}};
  while (out.size() < n) out.push_back({axis(), axis()});
  if (pooling)
    for (Case& c : out)
      for (Axis* a : {&c.y, &c.x}) a->pad = std::min(a->pad, a->kernel / 2);
  return out;
}
std::vector<float> numbers(size_t n, int seed, int from, int to) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(from + static_cast<int>(random() % static_cast<uint32_t>(to - from + 1)));
  return v;
}
constexpr size_t kPlanes = 3;

TEST(Windows, ConvolutionsAndTheirGradients) {
  constexpr size_t kOut = 3, kBatch = 2;
  size_t channels = 8;  // with as many channels gradients of inputs are transposed convolutions
  for (const Case& c : cases(false, 24)) {
    channels = 10 - channels;
    const auto in = static_cast<size_t>(c.y.size * c.x.size), out = static_cast<size_t>(c.y.out() * c.x.out()),
               taps = static_cast<size_t>(c.y.kernel * c.x.kernel);
    const auto x = numbers(kBatch * channels * in, 1, -3, 3), w = numbers(kOut * channels * taps, 2, -3, 3),
               g = numbers(kBatch * kOut * out, 3, -3, 3);
    std::vector<float> y(g.size(), 0), dx(x.size(), 0), dw(w.size(), 0);
    c.each([&](size_t o, size_t k, int64_t at) {
      if (at < 0) return;
      for (size_t b = 0; b < kBatch; b++)
        for (size_t p = 0; p < channels; p++)
          for (size_t q = 0; q < kOut; q++) {
            const size_t i = (b * channels + p) * in + static_cast<size_t>(at), j = (q * channels + p) * taps + k,
                         r = (b * kOut + q) * out + o;
            y[r] += x[i] * w[j];
            dx[i] += g[r] * w[j];
            dw[j] += g[r] * x[i];
          }
    });
    const Tensor tx = Tensor::from(x, {kBatch, channels, c.y.size, c.x.size}),
                 tw = Tensor::from(w, {kOut, channels, c.y.kernel, c.x.kernel});
    const Tensor ty = tx.conv2d(tw, {},
                                {.stride = {c.y.step, c.x.step},
                                 .dilation = {c.y.dilation, c.x.dilation},
                                 .padding = {c.x.pad, c.x.pad, c.y.pad, c.y.pad}});
    const Tensors grads = ty.gradient({tx, tw}, Tensor::from(g, ty.shape()));
    EXPECT_EQ(ty.to_vector<float>(), y) << c.text();
    EXPECT_EQ(grads[0].to_vector<float>(), dx) << c.text();
    EXPECT_EQ(grads[1].to_vector<float>(), dw) << c.text();
  }
}
/// A transposed convolution of x against loops over the elements: out[i * step + k * dilation - before] += x[i] * w[k].
struct Spread {
  int64_t size, kernel, step, before, after, extra, dilation;
  int64_t out() const { return (size - 1) * step + dilation * (kernel - 1) + 1 + extra - before - after; }
};
TEST(Windows, TransposedConvolutionsAndTheirGradients) {
  constexpr int64_t kGroups = 2, kIn = 2, kOut = 3, kBatch = 2;  // channels of a group
  std::vector<std::pair<Spread, Spread>> all{
      {{8, 4, 2, 1, 1, 0, 1}, {20, 4, 2, 1, 1, 0, 1}},  // whole phases
      {{7, 3, 2, 1, 1, 1, 1}, {18, 3, 2, 1, 1, 1, 1}},  // phases of one and two taps
      {{5, 2, 2, 0, 0, 0, 1}, {9, 2, 2, 0, 0, 0, 1}},   // one tap
      {{4, 2, 4, 0, 0, 3, 1}, {5, 1, 3, 0, 0, 2, 1}},   // phases without a tap
      {{6, 5, 3, 2, 2, 0, 1}, {1, 7, 3, 1, 0, 1, 1}},   // a rest of a phase, one element
      {{5, 3, 2, 1, 1, 1, 2}, {6, 3, 1, 1, 1, 0, 1}},   // dilation: zeros between the elements
      {{5, 3, 1, 2, 2, 0, 2}, {6, 4, 2, 1, 1, 0, 1}},   // dilation of an axis without steps
      {{6, 2, 2, 3, 4, 0, 1}, {7, 3, 2, 4, 5, 1, 1}},   // padding takes elements off
      {{4, 3, 2, 0, 3, 0, 1}, {5, 5, 2, 6, 0, 1, 1}},  {{6, 12, 6, 3, 3, 0, 1}, {3, 8, 8, 0, 0, 0, 1}},  // many phases
      {{1, 4, 1, 0, 0, 0, 1}, {1, 3, 2, 1, 1, 0, 1}},  // an image of one element
  };
  std::mt19937 random(11);
  auto below = [&](int64_t k) { return static_cast<int64_t>(random() % static_cast<uint32_t>(k)); };
  auto axis = [&] {
    Spread a{1 + below(9), 1 + below(6), 1 + below(4), 0, 0, 0, 1 + below(4) / 3};
    a.extra = below(a.step);
    a.before = below(a.kernel);
    a.after = below(a.kernel);
    while (a.out() < 1) a.size++;
    return a;
  };
  while (all.size() < 24) all.emplace_back(axis(), axis());
  for (const auto& [y, x] : all) {
    const int64_t in = y.size * x.size, taps = y.kernel * x.kernel, out = y.out() * x.out();
    auto count = [](int64_t n) { return static_cast<size_t>(n); };
    const auto v = numbers(count(kBatch * kGroups * kIn * in), 1, -3, 3),
               w = numbers(count(kGroups * kIn * kOut * taps), 2, -3, 3),
               g = numbers(count(kBatch * kGroups * kOut * out), 3, -3, 3);
    std::vector<float> r(g.size(), 0), dx(v.size(), 0), dw(w.size(), 0);
    for (int64_t iy = 0; iy < y.size; iy++)
      for (int64_t ix = 0; ix < x.size; ix++)
        for (int64_t ky = 0; ky < y.kernel; ky++)
          for (int64_t kx = 0; kx < x.kernel; kx++) {
            const int64_t oy = iy * y.step + ky * y.dilation - y.before, ox = ix * x.step + kx * x.dilation - x.before;
            if (oy < 0 || oy >= y.out() || ox < 0 || ox >= x.out()) continue;
            for (int64_t b = 0; b < kBatch; b++)
              for (int64_t c = 0; c < kGroups * kIn; c++)
                for (int64_t o = 0; o < kOut; o++) {
                  const size_t i = count((b * kGroups * kIn + c) * in + iy * x.size + ix),
                               j = count((c * kOut + o) * taps + ky * x.kernel + kx),
                               k = count((b * kGroups * kOut + c / kIn * kOut + o) * out + oy * x.out() + ox);
                  r[k] += v[i] * w[j];
                  dx[i] += g[k] * w[j];
                  dw[j] += g[k] * v[i];
                }
          }
    const Tensor tx = Tensor::from(v, {kBatch, kGroups * kIn, y.size, x.size}),
                 tw = Tensor::from(w, {kGroups * kIn, kOut, y.kernel, x.kernel});
    const ConvTransposeOptions o{.groups = kGroups,
                                 .stride = {y.step, x.step},
                                 .dilation = {y.dilation, x.dilation},
                                 .padding = {x.before, x.after, y.before, y.after},
                                 .output_padding = {y.extra, x.extra}};
    const Tensor ty = tx.conv_transpose2d(tw, {}, o);
    const Tensors grads = ty.gradient({tx, tw}, Tensor::from(g, ty.shape()));
    EXPECT_EQ(ty.shape(), (Shape{kBatch, kGroups * kOut, y.out(), x.out()}));
    EXPECT_EQ(ty.to_vector<float>(), r);
    EXPECT_EQ(grads[0].to_vector<float>(), dx);
    EXPECT_EQ(grads[1].to_vector<float>(), dw);
    EXPECT_EQ(
        tx.cast(dtypes::int32).conv_transpose2d(tw.cast(dtypes::int32), {}, o).cast(dtypes::float32).to_vector<float>(),
        r);
    if (HasFailure()) {
      std::string text;
      for (const Spread& a : {y, x})
        text += str("size ", a.size, " kernel ", a.kernel, " step ", a.step, " padding ", a.before, ", ", a.after,
                    " and ", a.extra, " dilation ", a.dilation, "; ");
      FAIL() << text;
    }
  }
}
TEST(Windows, TransposedConvolutionsAreOneKernel) {
  if (env::EAGER) GTEST_SKIP() << "what is counted is a whole graph; EAGER=1 computes each operation by itself";
  const int64_t bytes = (2 * 4 * 16 * 16 + 4 * 3 * 4 * 4 + 3 + 2 * 3 * 32 * 32) * 4;
  const Tensor x = Tensor::from(numbers(2 * 4 * 16 * 16, 1, -3, 3), {2, 4, 16, 16}).realize(),
               b = Tensor::from(numbers(3, 3, -3, 3)).realize(),
               w = Tensor::from(numbers(4 * 3 * 4 * 4, 2, -3, 3), {4, 3, 4, 4}).realize();
  const Tensor g = Tensor::from(numbers(2 * 3 * 32 * 32, 4, -3, 3), {2, 3, 32, 32}).realize();
  auto run = [](Tensor t) {
    const int64_t kernels = GlobalCounters::kernels, moved = GlobalCounters::mem, ops = GlobalCounters::ops;
    t.realize();
    return std::array{GlobalCounters::kernels - kernels, GlobalCounters::mem - moved, GlobalCounters::ops - ops};
  };
  const Tensor y = x.conv_transpose2d(w, b, {.stride = 2, .padding = 1});
  const Tensors grads = y.gradient({x, w}, g);
  // 4 of the 16 taps reach an element: products and sums of those, and as much again for indices, masks, the bias and
  // relu.
  const int64_t products = 2 * 3 * 32 * 32 * 4 * 4;
  const auto [kernels, moved, ops] = run(y.relu());
  EXPECT_EQ(kernels, 1);
  EXPECT_LE(moved, bytes);
  EXPECT_LE(ops, 4 * products);
  EXPECT_EQ(run(grads[0])[0], 1);
  EXPECT_EQ(run(grads[1])[0], 1);
  // Polyphase components of one and of two taps on each axis: four sums, and the kernel that interleaves them.
  const Tensor v = w.shrink_to({4, 3, 3, 3}).contiguous().realize(),
               z = x.conv_transpose2d(v, b, {.stride = 2, .padding = 1, .output_padding = 1});
  const int64_t fewer = products / 16 * 9, part = 2 * 3 * 16 * 16 * 4;
  const auto [sums, stored, less] = run(z.relu());
  EXPECT_EQ(sums, 5);
  EXPECT_LE(stored, 4 * (2 * 4 * 16 * 16 + 4 * 3 * 3 * 3) * 4 + 3 * 4 + 2 * 4 * part + 2 * 3 * 32 * 32 * 4);
  EXPECT_LE(less, 5 * fewer);
  // No elements.
  EXPECT_EQ(Tensor::zeros(0, 4, 16, 16).conv_transpose2d(w, b, {.stride = 2, .padding = 1}).shape(),
            (Shape{0, 3, 32, 32}));
}
TEST(Windows, GradientsOfConvolutionsInStepsHaveNoColumns) {
  const Tensor x = Tensor::from(numbers(2 * 8 * 16 * 16, 1, -3, 3), {2, 8, 16, 16}).realize(),
               w = Tensor::from(numbers(4 * 8 * 5 * 5, 2, -3, 3), {4, 8, 5, 5}).realize(),
               g = Tensor::from(numbers(2 * 4 * 8 * 8, 3, -3, 3), {2, 4, 8, 8}).realize(),
               v = Tensor::from(numbers(2 * 8 * 16 * 16, 4, -3, 3), {2, 8, 16, 16}).realize();
  const ConvOptions o{.stride = 2, .padding = 2};
  const Tensors grads = x.conv2d(w, {}, o).gradient({x, w}, g);
  // <dx, v> = <g, conv(v, w)>
  const Tensors again = (grads[0] * v).sum().gradient({g, w}), want = v.conv2d(w, {}, o).gradient({w}, g);
  EXPECT_EQ(again[0].to_vector<float>(), v.conv2d(w, {}, o).to_vector<float>());
  EXPECT_EQ(again[1].to_vector<float>(), want[0].to_vector<float>());
  if (!counts_whole_graphs())
    GTEST_SKIP() << "what is counted is a whole graph in buffers; EAGER=1 and IMAGE=1 have none";
  const int64_t kernels = GlobalCounters::kernels, moved = GlobalCounters::mem, image = 2 * 8 * 16 * 16 * 4,
                read = (2 * 4 * 8 * 8 + 4 * 8 * 5 * 5) * 4;
  const Tensor dx = grads[0].realize();
  EXPECT_EQ(GlobalCounters::kernels - kernels, 5);  // components of two and three taps on each axis
  EXPECT_LE(GlobalCounters::mem - moved, 4 * read + 3 * image);
}
TEST(Windows, PoolingsAndTheirGradients) {
  for (const Case& c : cases(true, 16)) {
    const auto in = static_cast<size_t>(c.y.size * c.x.size), out = static_cast<size_t>(c.y.out() * c.x.out());
    const PoolOptions o{.kernel_size = {c.y.kernel, c.x.kernel},
                        .stride = {c.y.step, c.x.step},
                        .dilation = {c.y.dilation, c.x.dilation},
                        .padding = {c.x.pad, c.x.pad, c.y.pad, c.y.pad}};
    // Few different numbers: equals share.
    const auto x = numbers(kPlanes * in, 4, -1, 2);
    auto g = numbers(kPlanes * out, 5, -2, 2);
    std::vector<float> y(g.size(), -std::numeric_limits<float>::infinity()), ties(g.size(), 0), dx(x.size(), 0),
        total(g.size(), 0), dm(x.size(), 0);
    for (size_t p = 0; p < kPlanes; p++) {
      const float* v = x.data() + p * in;
      c.each([&](size_t r, size_t, int64_t at) {
        if (at >= 0) {
          y[p * out + r] = std::max(y[p * out + r], v[at]);
          total[p * out + r] += v[at];
        }
      });
      c.each([&](size_t r, size_t, int64_t at) { ties[p * out + r] += at >= 0 && v[at] == y[p * out + r]; });
      c.each([&](size_t r, size_t, int64_t at) {
        if (at < 0) return;
        const size_t i = p * in + static_cast<size_t>(at), j = p * out + r;
        if (v[at] == y[j]) dx[i] += g[j] / ties[j];
        dm[i] += g[j];
      });
    }
    const Tensor tx = Tensor::from(x, {1, static_cast<int64_t>(kPlanes), c.y.size, c.x.size}), ty = tx.max_pool2d(o),
                 tm = tx.avg_pool2d(o);
    const Tensor tg = Tensor::from(g, ty.shape());
    const auto taps = static_cast<float>(c.y.kernel * c.x.kernel);
    for (float& v : total) v /= taps;
    for (float& v : dm) v /= taps;
    const Tensor gy = ty.gradient({tx}, tg)[0], gm = tm.gradient({tx}, tg)[0];
    EXPECT_EQ(ty.to_vector<float>(), y) << c.text();
    test::expect_close(gy, dx, 1e-5);
    test::expect_close(tm, total, 1e-5);
    test::expect_close(gm, dm, 1e-5);
    if (HasFailure()) FAIL() << c.text();
  }
}
TEST(Windows, GradientsOfPoolingsHaveNoColumns) {
  if (env::EAGER) GTEST_SKIP() << "what is counted is a whole graph; EAGER=1 computes each operation by itself";
  const Tensor x = Tensor::from(numbers(8 * 56 * 56, 6, -9, 9), {1, 8, 56, 56}).realize();
  const int64_t image = 8 * 56 * 56 * 4, pooled = 8 * 28 * 28 * 4;
  auto run = [&](const Tensor& y) {
    const Tensor g = Tensor::from(numbers(8 * 28 * 28, 7, -9, 9), y.shape()).realize();
    const Tensor dx = y.gradient({x}, g)[0];
    const int64_t kernels = GlobalCounters::kernels, bytes = GlobalCounters::mem;
    dx.realize();
    return std::pair{GlobalCounters::kernels - kernels, GlobalCounters::mem - bytes};
  };
  const PoolOptions o{.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1}};
  // The maxima; what each of those that share one gets; and for every element the windows that hold it.
  const auto [kernels, bytes] = run(x.max_pool2d(o));
  EXPECT_EQ(kernels, 3);
  EXPECT_LE(bytes, image + pooled + image + 3 * pooled + 2 * image + 2 * pooled);
  const auto [average, moved] = run(x.avg_pool2d(o));
  // The quotients by 9, which several elements read; and for every element the windows that hold it.
  EXPECT_EQ(average, 2);
  EXPECT_LE(moved, 2 * pooled + image + pooled);
}
}  // namespace
}  // namespace tg
