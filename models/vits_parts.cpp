/// \file Forward passes of the parts of VITS.
#include "models/vits_parts.h"

#include <algorithm>
#include <cmath>

namespace tg::models {
namespace {

/// Returns a convolution that keeps the length.
nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t dilation = 1, bool bias = true) {
  return nn::Conv1d(in, out, kernel, {.padding = (kernel - 1) * dilation / 2, .dilation = dilation, .bias = bias});
}

Tensor relative(const VitsOptions& o) {
  const int64_t dim = o.hidden / o.text.heads;
  const double deviation = 1 / std::sqrt(static_cast<double>(dim));
  return Tensor::normal({1, 2 * o.text.window + 1, dim}, {.std = deviation}).is_param_();
}

/// Picks along the last axis of `x` the elements that `at` (rows, columns) names; 0 where there are none.
Tensor picked(const Tensor& x, const Tensor& at) {
  const Tensor there = (at >= 0) & (at < x.shape(-1));
  const Tensor index = there.where(at, 0).expand(Shape{x.shape(0), x.shape(1), at.shape(0), at.shape(1)});
  return there.where(x.gather(-1, index), 0.0);
}

Tensor lengths_one(const Tensor& direction) { return direction.square().sum({1, 2}, true).sqrt(); }

/// Returns a convolution over (batch, time, channels) with zeros around that keep the length.
Tensor over_time(const nn::Conv2d& layer, const Tensor& x, const Tensor& mask) {
  const int64_t kernel = layer.weight.shape(2);
  return layer((x.transpose(1, 2) * mask).pad(Ints{(kernel - 1) / 2, kernel / 2})).transpose(1, 2);
}

}  // namespace

VitsAttention::VitsAttention(const VitsOptions& o)
    : k_proj(o.hidden, o.hidden),
      v_proj(o.hidden, o.hidden),
      q_proj(o.hidden, o.hidden),
      out_proj(o.hidden, o.hidden),
      emb_rel_k(relative(o)),
      emb_rel_v(relative(o)),
      heads(o.text.heads),
      window(o.text.window),
      dropout(o.text.dropout) {}

Tensor VitsAttention::operator()(const Tensor& x, const Tensor& mask) const {
  const int64_t time = x.shape(1);
  auto split = [&](const Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const Tensor q = split(q_proj(x)) / std::sqrt(static_cast<double>(x.shape(2) / heads));
  const Tensor places = Tensor::arange(time, {.device = x.device()});
  const Tensor steps = Tensor::arange(2 * window + 1, {.device = x.device()}) - window;
  const Tensor of_keys = picked(q.dot(emb_rel_k.transpose(1, 2)), places - places.unsqueeze(1) + window);
  const Tensor hidden = (1 - mask.unsqueeze(1)) * -10000.0;
  const Tensor scores = q.dot(split(k_proj(x)).transpose(2, 3)) + of_keys + hidden;
  const Tensor weights = scores.softmax().dropout(dropout);
  const Tensor of_values = picked(weights, places.unsqueeze(1) + steps).dot(emb_rel_v);
  return out_proj((weights.dot(split(v_proj(x))) + of_values).transpose(1, 2).flatten(2));
}

VitsEncoderLayer::VitsEncoderLayer(const VitsOptions& o)
    : attention(o),
      layer_norm(o.hidden),
      conv_1(nn::Conv1d(o.hidden, o.text.feed_forward, o.text.feed_forward_kernel)),
      conv_2(nn::Conv1d(o.text.feed_forward, o.hidden, o.text.feed_forward_kernel)),
      final_layer_norm(o.hidden),
      dropout(o.text.dropout) {}

Tensor VitsEncoderLayer::operator()(const Tensor& x, const Tensor& mask) const {
  const Tensor y = layer_norm(x + attention(x, mask).dropout(dropout));
  const Tensor inner = over_time(conv_1, y, mask).relu().dropout(dropout);
  const Tensor outer = over_time(conv_2, inner, mask) * mask.transpose(1, 2);
  return final_layer_norm(y + outer.dropout(dropout));
}

void VitsEncoderLayer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("attention, layer_norm, feed_forward.conv_1, feed_forward.conv_2, final_layer_norm", attention,
                  layer_norm, conv_1, conv_2, final_layer_norm);
}

VitsTextEncoder::VitsTextEncoder(const VitsOptions& o)
    : embed_tokens(o.text.vocab_size, o.hidden), project(conv(o.hidden, 2 * o.flow_size, 1)) {
  for (int64_t i = 0; i < o.text.layers; i++) layers.emplace_back(o);
}

VitsTextEncoder::Result VitsTextEncoder::operator()(const Tensor& ids, const Tensor& mask) const {
  Tensor x = embed_tokens(ids);
  x = x * std::sqrt(static_cast<double>(x.shape(2))) * mask.transpose(1, 2);
  for (const VitsEncoderLayer& layer : layers) x = layer(x, mask);
  const Tensor hidden = x.transpose(1, 2) * mask;
  const Tensors parts = (project(hidden) * mask).chunk(2, 1);
  return {hidden, parts[0], parts[1]};
}

void VitsTextEncoder::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("embed_tokens, encoder.layers, project", embed_tokens, layers, project);
}

WeightNormConv::WeightNormConv(int64_t in, int64_t out, int64_t kernel, int64_t dilation)
    : options{.dilation = dilation, .padding = (kernel - 1) * dilation / 2} {
  const nn::Conv2d like = conv(in, out, kernel, dilation);
  direction = like.weight;
  bias = like.bias;
  length = lengths_one(direction.detach()).contiguous().is_param_();
}

Tensor WeightNormConv::operator()(const Tensor& x) const {
  return x.conv2d(direction * (length / lengths_one(direction)), bias, options);
}

void WeightNormConv::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("bias, parametrizations.weight.original0, parametrizations.weight.original1", bias, length,
                  direction);
}

VitsWaveNet::VitsWaveNet(int64_t layers, const VitsOptions& o) {
  if (o.speaker_size > 0) cond_layer.emplace(o.speaker_size, 2 * o.hidden * layers, 1);
  int64_t dilation = 1;
  for (int64_t i = 0; i < layers; i++) {
    in_layers.emplace_back(o.hidden, 2 * o.hidden, o.wavenet_kernel, dilation);
    res_skip_layers.emplace_back(o.hidden, i + 1 < layers ? 2 * o.hidden : o.hidden, 1);
    dilation *= o.wavenet_dilation;
  }
}

Tensor VitsWaveNet::operator()(const Tensor& x, const Tensor& mask, const Tensor& speaker) const {
  Tensor y = x, sum;
  const Tensor shifts = speaker.defined() ? (*cond_layer)(speaker) : Tensor();
  const int64_t hidden = x.shape(1);
  for (size_t i = 0; i < in_layers.size(); i++) {
    Tensor gates = in_layers[i](y);
    const auto first = static_cast<int64_t>(i) * 2 * hidden;
    if (shifts.defined()) gates = gates + shifts.slice(1, first, first + 2 * hidden);
    const Tensors halves = gates.chunk(2, 1);
    Tensor out = res_skip_layers[i](halves[0].tanh() * halves[1].sigmoid());
    if (i + 1 < in_layers.size()) {
      const Tensors parts = out.chunk(2, 1);
      y = (y + parts[0]) * mask;
      out = parts[1];
    }
    sum = sum.defined() ? sum + out : out;
  }
  return sum * mask;
}

VitsCoupling::VitsCoupling(const VitsOptions& o)
    : conv_pre(conv(o.flow_size / 2, o.hidden, 1)),
      wavenet(o.flow_layers, o),
      conv_post(conv(o.hidden, o.flow_size / 2, 1)) {}

Tensor VitsCoupling::operator()(const Tensor& x, const Tensor& mask, const Tensor& speaker, bool reverse) const {
  const Tensors halves = x.chunk(2, 1);
  const Tensor shift = conv_post(wavenet(conv_pre(halves[0]) * mask, mask, speaker)) * mask;
  return halves[0].cat(reverse ? (halves[1] - shift) * mask : shift + halves[1] * mask, 1);
}

VitsFlow::VitsFlow(const VitsOptions& o) {
  for (int64_t i = 0; i < o.flows; i++) flows.emplace_back(o);
}

Tensor VitsFlow::operator()(const Tensor& x, const Tensor& mask, const Tensor& speaker, bool reverse) const {
  Tensor y = x;
  for (size_t i = 0; i < flows.size(); i++)
    y = reverse ? flows[flows.size() - 1 - i](y.flip(1), mask, speaker, true)
                : flows[i](y, mask, speaker, false).flip(1);
  return y;
}

VitsPosteriorEncoder::VitsPosteriorEncoder(const VitsOptions& o)
    : conv_pre(conv(o.spectrum_bins, o.hidden, 1)),
      wavenet(o.posterior_layers, o),
      conv_proj(conv(o.hidden, 2 * o.flow_size, 1)) {}

VitsPosteriorEncoder::Result VitsPosteriorEncoder::operator()(const Tensor& spectra, const Tensor& mask,
                                                              const Tensor& speaker) const {
  const Tensors parts = (conv_proj(wavenet(conv_pre(spectra) * mask, mask, speaker)) * mask).chunk(2, 1);
  return {parts[0], parts[1]};
}

HifiGanBlock::HifiGanBlock(int64_t channels, int64_t kernel, const VitsOptions& o) : slope(o.decoder.slope) {
  for (const int64_t dilation : o.decoder.resblock_dilations) {
    convs1.push_back(conv(channels, channels, kernel, dilation));
    convs2.push_back(conv(channels, channels, kernel));
  }
}

Tensor HifiGanBlock::operator()(const Tensor& x) const {
  Tensor y = x;
  for (size_t i = 0; i < convs1.size(); i++) y = y + convs2[i](convs1[i](y.leaky_relu(slope)).leaky_relu(slope));
  return y;
}

HifiGan::HifiGan(const VitsOptions& o)
    : conv_pre(conv(o.flow_size, o.decoder.channels, 7)),
      conv_post(conv(o.decoder.channels >> o.decoder.upsample_rates.size(), 1, 7, 1, false)),
      slope(o.decoder.slope) {
  if (o.speaker_size > 0) cond = conv(o.speaker_size, o.decoder.channels, 1);
  int64_t channels = o.decoder.channels;
  for (size_t i = 0; i < o.decoder.upsample_rates.size(); i++) {
    const int64_t rate = o.decoder.upsample_rates[i], kernel = o.decoder.upsample_kernels[i];
    upsampler.push_back(
        nn::ConvTranspose1d(channels, channels / 2, kernel, {.stride = rate, .padding = (kernel - rate) / 2}));
    channels /= 2;
    for (const int64_t k : o.decoder.resblock_kernels) resblocks.emplace_back(channels, k, o);
  }
}

Tensor HifiGan::operator()(const Tensor& latents, const Tensor& speaker) const {
  Tensor x = conv_pre(latents);
  if (speaker.defined()) x = x + (*cond)(speaker);
  const size_t kernels = resblocks.size() / std::max<size_t>(1, upsampler.size());
  for (size_t i = 0; i < upsampler.size(); i++) {
    const Tensor wide = upsampler[i](x.leaky_relu(slope));
    Tensors parts;
    for (size_t k = 0; k < kernels; k++) parts.push_back(resblocks[i * kernels + k](wide));
    x = Tensor::stack(parts).mean(0);
  }
  return conv_post(x.leaky_relu()).tanh();
}

}  // namespace tg::models
