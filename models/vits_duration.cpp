/// \file Flows over durations.
#include "models/vits_duration.h"

#include <cmath>
#include <numbers>

namespace tg::models {
namespace {

constexpr double kLeast = 1e-3;  ///< width, height and slope of a piece

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel = 1) {
  return nn::Conv1d(in, out, kernel, {.padding = kernel / 2});
}

/// Normalizes the channels of (batch, channels, time).
Tensor over_channels(const nn::LayerNorm& norm, const Tensor& x) { return norm(x.transpose(1, 2)).transpose(1, 2); }

/// Returns the edges (..., bins + 1) of pieces that fill the interval from -bound to bound.
Tensor edges(const Tensor& sizes, double bound) {
  const int64_t bins = sizes.shape(-1);
  const Tensor part = sizes.softmax() * (1 - kLeast * static_cast<double>(bins)) + kLeast;
  const Tensor inner = part.cumsum(-1).slice(-1, 0, bins - 1) * (2 * bound) - bound;
  return inner.pad(Ints{1, 0}, {.value = -bound}).pad(Ints{0, 1}, {.value = bound});
}

/// Numbers of the piece that each element is in.
struct Piece {
  Tensor x, width, y, height, slope, next_slope;
  /// Returns by how much the slope changes over the piece, beyond a straight line.
  Tensor bend() const { return slope + next_slope - height / width * 2; }
  /// Returns the logarithm of the derivative where a part `t` of the piece has passed.
  Tensor log_derivative(const Tensor& t) const {
    const Tensor mean = height / width, both = t * (1 - t);
    const Tensor top = mean.square() * (next_slope * t.square() + mean * 2 * both + slope * (1 - t).square());
    return top.log() - (mean + bend() * both).log() * 2;
  }
  Tensor value(const Tensor& at) const {
    const Tensor t = (at - x) / width, mean = height / width, both = t * (1 - t);
    return y + height * (mean * t.square() + slope * both) / (mean + bend() * both);
  }
  /// Returns the part of the piece that has passed where the value is `at`: the root of a quadratic equation.
  Tensor root(const Tensor& at) const {
    const Tensor rise = at - y, bent = rise * bend(), mean = height / width;
    const Tensor a = height * (mean - slope) + bent, b = height * slope - bent, c = -mean * rise;
    return c * 2 / (-b - (b.square() - a * c * 4).sqrt());
  }
};

}  // namespace

std::pair<Tensor, Tensor> rational_spline(const Tensor& x, const Tensor& widths, const Tensor& heights,
                                          const Tensor& slopes, double bound, bool reverse) {
  const int64_t bins = widths.shape(-1);
  const Tensor xs = edges(widths, bound), ys = edges(heights, bound);
  // At both ends the slope is 1.
  const Tensor all_slopes = (slopes.softplus() + kLeast).pad(Ints{1, 1}, {.value = 1.0});
  const Tensor inside = (x >= -bound) & (x <= bound), at = inside.where(x, 0.0);
  const Tensor inner = (reverse ? ys : xs).slice(-1, 1, bins);
  const Tensor number = (at.unsqueeze(-1) >= inner).cast(dtypes::int32).sum(-1).unsqueeze(-1);
  auto pick = [&](const Tensor& t, int64_t first) {
    return t.slice(-1, first, first + bins).gather(-1, number).squeeze(-1);
  };
  const Tensor left = pick(xs, 0), low = pick(ys, 0);
  const Piece p{left, pick(xs, 1) - left, low, pick(ys, 1) - low, pick(all_slopes, 0), pick(all_slopes, 1)};
  const Tensor t = reverse ? p.root(at) : (at - p.x) / p.width;
  const Tensor value = reverse ? t * p.width + p.x : p.value(at), change = p.log_derivative(t);
  return {inside.where(value, x), inside.where(reverse ? -change : change, 0.0)};
}

VitsSeparableConvs::VitsSeparableConvs(const VitsOptions& o, double p) : dropout(p) {
  int64_t dilation = 1;
  for (int64_t i = 0; i < o.durations.separable_layers; i++) {
    const int64_t padding = (o.durations.kernel - 1) * dilation / 2;
    convs_dilated.push_back(nn::Conv1d(o.hidden, o.hidden, o.durations.kernel,
                                       {.padding = padding, .dilation = dilation, .groups = o.hidden}));
    convs_pointwise.push_back(conv(o.hidden, o.hidden));
    norms_1.emplace_back(o.hidden);
    norms_2.emplace_back(o.hidden);
    dilation *= o.durations.kernel;
  }
}

Tensor VitsSeparableConvs::operator()(const Tensor& x, const Tensor& mask) const {
  Tensor y = x;
  for (size_t i = 0; i < convs_dilated.size(); i++) {
    const Tensor wide = over_channels(norms_1[i], convs_dilated[i](y * mask)).gelu(false);
    y = y + over_channels(norms_2[i], convs_pointwise[i](wide)).gelu(false).dropout(dropout);
  }
  return y * mask;
}

VitsSplineFlow::VitsSplineFlow(const VitsOptions& o)
    : conv_pre(conv(1, o.hidden)),
      conv_dds(o, 0),
      conv_proj(conv(o.hidden, 3 * o.durations.spline_bins - 1)),
      bins(o.durations.spline_bins),
      bound(o.durations.spline_bound) {}

std::pair<Tensor, Tensor> VitsSplineFlow::operator()(const Tensor& x, const Tensor& mask, const Tensor& condition,
                                                     bool reverse) const {
  const Tensors halves = x.chunk(2, 1);
  const Tensor hidden = conv_proj(conv_dds(conv_pre(halves[0]) + condition, mask)) * mask;
  const Tensors parts = hidden.transpose(1, 2).unsqueeze(1).split({bins, bins, bins - 1}, -1);
  const double scale = std::sqrt(static_cast<double>(conv_pre.weight.shape(0)));
  const auto [value, change] = rational_spline(halves[1], parts[0] / scale, parts[1] / scale, parts[2], bound, reverse);
  return {halves[0].cat(value, 1) * mask, (change * mask).sum({1, 2})};
}

VitsDurationFlows::VitsDurationFlows(const VitsOptions& o)
    : translate(Tensor::zeros({2, 1}).is_param_()), log_scale(Tensor::zeros({2, 1}).is_param_()) {
  for (int64_t i = 0; i < o.durations.flows; i++) splines.emplace_back(o);
}

std::pair<Tensor, Tensor> VitsDurationFlows::forward(const Tensor& x, const Tensor& mask,
                                                     const Tensor& condition) const {
  Tensor y = ((translate + log_scale.exp() * x) * mask).flip(1), change = (log_scale * mask).sum({1, 2});
  for (const VitsSplineFlow& spline : splines) {
    const auto [next, more] = spline(y, mask, condition, false);
    y = next.flip(1);
    change = change + more;
  }
  return {y, change};
}

Tensor VitsDurationFlows::reverse(const Tensor& x, const Tensor& mask, const Tensor& condition) const {
  Tensor y = x;
  for (size_t i = splines.size(); i-- > 1;) y = splines[i](y.flip(1), mask, condition, true).first;
  return (y.flip(1) - translate) * (-log_scale).exp() * mask;
}

void VitsDurationFlows::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("0.translate, 0.log_scale", translate, log_scale);
  for (size_t i = 0; i < splines.size(); i++) visitor.member(str(i + 1), splines[i]);
}

VitsStochasticDurations::VitsStochasticDurations(const VitsOptions& o)
    : conv_pre(conv(o.hidden, o.hidden)),
      conv_proj(conv(o.hidden, o.hidden)),
      conv_dds(o, o.durations.dropout),
      flows(o),
      post_conv_pre(conv(1, o.hidden)),
      post_conv_proj(conv(o.hidden, o.hidden)),
      post_conv_dds(o, o.durations.dropout),
      post_flows(o) {
  if (o.speaker_size > 0) cond = conv(o.speaker_size, o.hidden);
}

Tensor VitsStochasticDurations::condition(const Tensor& hidden, const Tensor& mask, const Tensor& speaker) const {
  Tensor x = conv_pre(hidden.detach());
  if (speaker.defined()) x = x + (*cond)(speaker.detach());
  return conv_proj(conv_dds(x, mask)) * mask;
}

Tensor VitsStochasticDurations::operator()(const Tensor& hidden, const Tensor& mask, const Tensor& speaker,
                                           const Tensor& noise) const {
  return flows.reverse(noise, mask, condition(hidden, mask, speaker)).chunk(2, 1)[0];
}

Tensor VitsStochasticDurations::loss(const Tensor& hidden, const Tensor& mask, const Tensor& speaker,
                                     const Tensor& durations, const Tensor& noise) const {
  const Tensor text = condition(hidden, mask, speaker);
  const Tensor spoken = post_conv_proj(post_conv_dds(post_conv_pre(durations), mask)) * mask;
  const Tensor drawn = noise * mask;
  auto surprise = [&](const Tensor& x) {
    return ((x.square() + std::log(2 * std::numbers::pi)) / 2 * mask).sum({1, 2});
  };
  const auto [posterior, posterior_change] = post_flows.forward(drawn, mask, text + spoken);
  // A number between 0 and 1 makes durations continuous; the other channel helps.
  const Tensors parts = posterior.chunk(2, 1);
  const Tensor squashed = ((parts[0].logsigmoid() + (-parts[0]).logsigmoid()) * mask).sum({1, 2});
  const Tensor logs = ((durations - parts[0].sigmoid()) * mask).clamp(Tensor(1e-5)).log() * mask;
  const auto [latents, change] = flows.forward(logs.cat(parts[1], 1), mask, text);
  return surprise(latents) - change + logs.sum({1, 2}) - surprise(drawn) - posterior_change - squashed;
}

VitsDurations::VitsDurations(const VitsOptions& o)
    : conv_1(conv(o.hidden, o.durations.channels, o.durations.kernel)),
      norm_1(o.durations.channels),
      conv_2(conv(o.durations.channels, o.durations.channels, o.durations.kernel)),
      norm_2(o.durations.channels),
      proj(conv(o.durations.channels, 1)),
      dropout(o.durations.dropout) {
  if (o.speaker_size > 0) cond = conv(o.speaker_size, o.hidden);
}

Tensor VitsDurations::operator()(const Tensor& hidden, const Tensor& mask, const Tensor& speaker) const {
  Tensor x = hidden.detach();
  if (speaker.defined()) x = x + (*cond)(speaker.detach());
  x = over_channels(norm_1, conv_1(x * mask).relu()).dropout(dropout);
  x = over_channels(norm_2, conv_2(x * mask).relu()).dropout(dropout);
  return proj(x * mask) * mask;
}

}  // namespace tg::models
