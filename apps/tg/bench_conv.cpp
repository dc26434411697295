/// \file Convolution rows, forward and backward.
#include "apps/tg/bench_kernel.h"

namespace tg::bench {
namespace {

constexpr Conv k3x3{.n = 8, .in = 64, .out = 64, .h = 64, .w = 64, .kernel = 3, .padding = 1};
constexpr Conv k1x1{.n = 8, .in = 256, .out = 256, .h = 32, .w = 32, .kernel = 1};
constexpr Conv k7x7{.n = 8, .in = 3, .out = 64, .h = 224, .w = 224, .kernel = 7, .stride = 2, .padding = 3};
constexpr Conv kDepthwise{.n = 8, .in = 128, .out = 128, .h = 64, .w = 64, .kernel = 3, .padding = 1, .groups = 128};
constexpr Conv k5x5{.n = 4, .in = 32, .out = 64, .h = 56, .w = 56, .kernel = 5, .padding = 2};
constexpr Conv kDilated{.n = 4, .in = 64, .out = 64, .h = 56, .w = 56, .kernel = 3, .padding = 2, .dilation = 2};

struct Data {
  const Conv& conv;
  Tensor x = input({conv.n, conv.in, conv.h, conv.w}, 1),
         weight = input({conv.out, conv.in / conv.groups, conv.kernel, conv.kernel}, 2),
         dy = input({conv.n, conv.out, conv.out_h(), conv.out_w()}, 3);
  explicit Data(const Conv& c) : conv(c) {}
  Tensor forward() const {
    return x.conv2d(weight, {},
                    {.groups = conv.groups, .stride = conv.stride, .dilation = conv.dilation, .padding = conv.padding});
  }
  Tensors backward() const { return forward().gradient({x, weight}, dy); }
  double x_bytes() const { return static_cast<double>(x.numel()) * kFloat; }
  double y_bytes() const { return static_cast<double>(dy.numel()) * kFloat; }
};

Samples forward(const Context& c, const Conv& conv) {
  const Data d(conv);
  const std::span<const float> x = d.x.data<float>(), weight = d.weight.data<float>();
  check_samples("conv forward", d.forward(), [&](size_t at) { return conv.forward(x, weight, at); });
  return time_run(c, {.flops = conv.flops(), .bytes_read = d.x_bytes(), .bytes_written = d.y_bytes()},
                  [&] { return Tensors{d.forward()}; });
}

Samples backward(const Context& c, const Conv& conv) {
  const Data d(conv);
  const Tensors got = d.backward();
  realize(got);
  const std::span<const float> x = d.x.data<float>(), weight = d.weight.data<float>(), dy = d.dy.data<float>();
  check_samples("conv input gradient", got[0], [&](size_t at) { return conv.grad_input(dy, weight, at); });
  check_samples(
      "conv weight gradient", got[1], [&](size_t at) { return conv.grad_weight(x, dy, at); }, kTolerance, kSamples / 4);
  return time_run(c, {.flops = 2 * conv.flops(), .bytes_read = d.x_bytes() + d.y_bytes(), .bytes_written = d.x_bytes()},
                  [&] { return d.backward(); });
}

constexpr Row kRows[] = {
    {"conv3x3_64_fwd", "GFLOP/s", "3x3 convolution of (8, 64, 64, 64) to 64 channels",
     [](Context& c) { return forward(c, k3x3); }},
    {"conv3x3_64_bwd", "GFLOP/s", "gradients of its input and weight", [](Context& c) { return backward(c, k3x3); }},
    {"conv1x1_256_fwd", "GFLOP/s", "1x1 convolution of (8, 256, 32, 32) to 256 channels",
     [](Context& c) { return forward(c, k1x1); }},
    {"conv1x1_256_bwd", "GFLOP/s", "gradients of its input and weight", [](Context& c) { return backward(c, k1x1); }},
    {"conv7x7_s2_fwd", "GFLOP/s", "7x7 convolution of (8, 3, 224, 224) to 64 channels, stride 2",
     [](Context& c) { return forward(c, k7x7); }},
    {"conv7x7_s2_bwd", "GFLOP/s", "gradients of its input and weight", [](Context& c) { return backward(c, k7x7); }},
    {"conv_depthwise3x3_fwd", "GFLOP/s", "3x3 convolution of each channel of (8, 128, 64, 64)",
     [](Context& c) { return forward(c, kDepthwise); }},
    {"conv_depthwise3x3_bwd", "GFLOP/s", "gradients of its input and weight",
     [](Context& c) { return backward(c, kDepthwise); }},
    {"conv5x5_32_56_fwd", "GFLOP/s", "5x5 convolution of (4, 32, 56, 56) to 64 channels",
     [](Context& c) { return forward(c, k5x5); }},
    {"conv5x5_32_56_bwd", "GFLOP/s", "gradients of its input and weight", [](Context& c) { return backward(c, k5x5); }},
    {"conv3x3_dil2_64_fwd", "GFLOP/s", "3x3 convolution of (4, 64, 56, 56) to 64 channels, dilation 2",
     [](Context& c) { return forward(c, kDilated); }},
    {"conv3x3_dil2_64_bwd", "GFLOP/s", "gradients of its input and weight",
     [](Context& c) { return backward(c, kDilated); }},
};

}  // namespace

std::span<const Row> conv_rows() { return kRows; }

}  // namespace tg::bench
