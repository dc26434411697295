/// \file Forward passes of EfficientNet.
#include "models/efficientnet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// By how much a network is wider and deeper than B0.
struct Scale {
  double width, depth;
};
constexpr std::array<Scale, 10> kScales{{{1.0, 1.0},
                                         {1.0, 1.1},
                                         {1.1, 1.2},
                                         {1.2, 1.4},
                                         {1.4, 1.8},
                                         {1.6, 2.2},
                                         {1.8, 2.6},
                                         {2.0, 3.1},
                                         {2.2, 3.6},
                                         {4.3, 5.3}}};

/// A row of blocks of B0, of which the first has the stride.
struct Stage {
  int64_t blocks;
  MBConvOptions first;
};
constexpr std::array<Stage, 7> kStages{{{1, {.in = 32, .out = 16, .expansion = 1, .kernel = 3, .stride = 1}},
                                        {2, {.in = 16, .out = 24, .expansion = 6, .kernel = 3, .stride = 2}},
                                        {2, {.in = 24, .out = 40, .expansion = 6, .kernel = 5, .stride = 2}},
                                        {3, {.in = 40, .out = 80, .expansion = 6, .kernel = 3, .stride = 2}},
                                        {3, {.in = 80, .out = 112, .expansion = 6, .kernel = 5, .stride = 1}},
                                        {4, {.in = 112, .out = 192, .expansion = 6, .kernel = 5, .stride = 2}},
                                        {1, {.in = 192, .out = 320, .expansion = 6, .kernel = 3, .stride = 1}}}};

Scale scale_of(const EfficientNetOptions& o) {
  TG_CHECK(ValueError, o.number >= 0 && o.number < std::ssize(kScales), "[EfficientNet] got number ", o.number,
           ", expected 0 to 9");
  return kScales[static_cast<size_t>(o.number)];
}

/// Returns channels of B0, scaled and rounded to a multiple of 8, by no more than a tenth downwards.
int64_t channels(int64_t of_b0, const EfficientNetOptions& o) {
  const double wanted = static_cast<double>(of_b0) * scale_of(o).width;
  const int64_t rounded = std::max<int64_t>(8, static_cast<int64_t>(wanted + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * wanted ? rounded + 8 : rounded;
}

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, const nn::Conv2dOptions& o = {.bias = false}) {
  nn::Conv2d c(in, out, kernel, o);
  c.weight = Tensor::glorot_uniform(c.weight.shape());
  if (o.bias) c.bias = Tensor::zeros({out});
  return c;
}

/// Returns the zeros before and behind an axis of `size` elements.
std::pair<int64_t, int64_t> same_padding(int64_t size, int64_t kernel, int64_t stride) {
  const int64_t windows = (size + stride - 1) / stride;
  const int64_t zeros = std::max<int64_t>(0, (windows - 1) * stride + kernel - size);
  return {zeros / 2, zeros - zeros / 2};
}

Tensor same_conv(const nn::Conv2d& c, const Tensor& x) {
  ConvOptions o = c.options;
  const auto [left, right] = same_padding(x.shape(-1), c.weight.shape(-1), o.stride.front());
  const auto [top, bottom] = same_padding(x.shape(-2), c.weight.shape(-2), o.stride.front());
  o.padding = {left, right, top, bottom};
  return x.conv2d(c.weight, c.bias, o);
}

void visit_conv(nn::StateVisitor& visitor, const std::string& name, const nn::Conv2d& c) {
  visitor.member(name, c.weight);
  visitor.member(name + "_bias", c.bias);
}

}  // namespace

MBConvBlock::MBConvBlock(const MBConvOptions& b, const EfficientNetOptions& o)
    : depthwise_conv(conv(b.in * b.expansion, b.in * b.expansion, b.kernel,
                          {.stride = b.stride, .groups = b.in * b.expansion, .bias = false})),
      bn1(b.in * b.expansion, o.norm),
      project_conv(conv(b.in * b.expansion, b.out, 1)),
      bn2(b.out, o.norm) {
  const int64_t between = b.in * b.expansion;
  if (b.expansion != 1) {
    expand_conv = conv(b.in, between, 1);
    bn0.emplace(between, o.norm);
  }
  if (!o.squeeze_excitation) return;
  const int64_t squeezed = std::max<int64_t>(1, b.in / 4);
  se_reduce = conv(between, squeezed, 1, {});
  se_expand = conv(squeezed, between, 1, {});
}

Tensor MBConvBlock::operator()(const Tensor& x) const {
  Tensor y = expand_conv ? (*bn0)((*expand_conv)(x)).silu() : x;
  y = bn1(same_conv(depthwise_conv, y)).silu();
  if (se_reduce) y = y * (*se_expand)((*se_reduce)(y.mean({2, 3}, true)).silu()).sigmoid();
  y = bn2(project_conv(y));
  return y.shape() == x.shape() ? y + x : y;
}

void MBConvBlock::visit_state(nn::StateVisitor& visitor) const {
  if (expand_conv) visit_conv(visitor, "_expand_conv", *expand_conv);
  visitor.member("_bn0", bn0);
  visit_conv(visitor, "_depthwise_conv", depthwise_conv);
  visitor.member("_bn1", bn1);
  if (se_reduce) visit_conv(visitor, "_se_reduce", *se_reduce);
  if (se_expand) visit_conv(visitor, "_se_expand", *se_expand);
  visit_conv(visitor, "_project_conv", project_conv);
  visitor.member("_bn2", bn2);
}

EfficientNet::EfficientNet(const EfficientNetOptions& o)
    : conv_stem(conv(o.input_channels, channels(32, o), 3, {.stride = 2, .bias = false})),
      bn0(channels(32, o), o.norm),
      conv_head(conv(channels(320, o), channels(1280, o), 1)),
      bn1(channels(1280, o), o.norm) {
  for (const Stage& stage : kStages) {
    MBConvOptions b = stage.first;
    b.in = channels(b.in, o);
    b.out = channels(b.out, o);
    const double count = std::ceil(scale_of(o).depth * static_cast<double>(stage.blocks));
    for (int64_t i = 0; i < static_cast<int64_t>(count); i++) {
      blocks.emplace_back(b, o);
      b.in = b.out;
      b.stride = 1;
    }
  }
  if (o.classes == 0) return;
  fc = Tensor::glorot_uniform({channels(1280, o), o.classes});
  fc_bias = Tensor::zeros({o.classes});
}

Tensor EfficientNet::operator()(const Tensor& images) const {
  Tensor x = bn0(same_conv(conv_stem, images)).silu();
  for (const MBConvBlock& block : blocks) x = block(x);
  x = bn1(conv_head(x)).silu().mean({2, 3});
  return fc.defined() ? x.linear(fc, fc_bias) : x;
}

void EfficientNet::visit_state(nn::StateVisitor& visitor) const {
  visit_conv(visitor, "_conv_stem", conv_stem);
  visitor.member("_bn0", bn0);
  visitor.member("_blocks", blocks);
  visit_conv(visitor, "_conv_head", conv_head);
  visitor.member("_bn1", bn1);
  visitor.member("_fc", fc);
  visitor.member("_fc_bias", fc_bias);
}

nn::StateDict efficientnet_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    const size_t dot = name.rfind('.');
    const std::string layer = name.substr(0, dot);
    const std::string last = name.substr(dot == std::string::npos ? name.size() : dot + 1);
    const bool norm = layer.substr(layer.rfind('.') + 1).starts_with("_bn");
    if (norm || (last != "weight" && last != "bias")) out.emplace_back(name, t);
    else if (last == "bias") out.emplace_back(layer + "_bias", t);
    else out.emplace_back(layer, layer == "_fc" ? t.transpose() : t);
  }
  return out;
}

}  // namespace tg::models
