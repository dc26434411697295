/// \file How long VITS (models/vits.h) speaks each token: a normalizing flow over durations, or one guess.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "models/vits_parts.h"

namespace tg::models {

/// Piecewise rational functions that grow from -bound to bound, and outside are the identity (Durkan et al., "Neural
/// Spline Flows", arXiv 1906.04032). For `x` (...): widths and heights of pieces (..., bins), slopes between them (...,
/// bins - 1), all before they are normalized. Returns the value, or that of the inverse function, and the logarithm of
/// its derivative.
std::pair<Tensor, Tensor> rational_spline(const Tensor& x, const Tensor& widths, const Tensor& heights,
                                          const Tensor& slopes, double bound, bool reverse);

/// Convolutions of each channel over time and between channels, dilated more and more.
struct VitsSeparableConvs {
  std::vector<nn::Conv2d> convs_dilated, convs_pointwise;
  std::vector<nn::LayerNorm> norms_1, norms_2;
  double dropout;
  VitsSeparableConvs(const VitsOptions& o, double dropout);
  Tensor operator()(const Tensor& x, const Tensor& mask) const;
  TG_STATE(convs_dilated, convs_pointwise, norms_1, norms_2)
};

/// Changes one of two channels by splines that a network makes of the other.
struct VitsSplineFlow {
  nn::Conv2d conv_pre;
  VitsSeparableConvs conv_dds;
  nn::Conv2d conv_proj;
  int64_t bins;
  double bound;
  explicit VitsSplineFlow(const VitsOptions& o);
  /// Returns the sequence and the logarithm of the determinant, (batch,).
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& mask, const Tensor& condition,
                                       bool reverse) const;
  TG_STATE(conv_pre, conv_dds, conv_proj)
};

/// A scale and a shift of two channels, then spline flows.
struct VitsDurationFlows {
  Tensor translate, log_scale;  ///< (2, 1)
  std::vector<VitsSplineFlow> splines;
  explicit VitsDurationFlows(const VitsOptions& o);
  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask, const Tensor& condition) const;
  /// Goes back, without the spline that only the other channel depends on.
  Tensor reverse(const Tensor& x, const Tensor& mask, const Tensor& condition) const;
  /// Numbers its parts, as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Draws durations.
struct VitsStochasticDurations {
  nn::Conv2d conv_pre, conv_proj;
  VitsSeparableConvs conv_dds;
  std::optional<nn::Conv2d> cond;
  VitsDurationFlows flows;
  nn::Conv2d post_conv_pre, post_conv_proj;
  VitsSeparableConvs post_conv_dds;
  VitsDurationFlows post_flows;
  explicit VitsStochasticDurations(const VitsOptions& o);
  /// Returns logarithms of durations (batch, 1, time) for noise (batch, 2, time).
  Tensor operator()(const Tensor& hidden, const Tensor& mask, const Tensor& speaker, const Tensor& noise) const;
  /// Returns a bound of the negative logarithm of the probability of durations (batch, 1, time), (batch,), for noise
  /// (batch, 2, time) that is standard normal: what it is trained with.
  Tensor loss(const Tensor& hidden, const Tensor& mask, const Tensor& speaker, const Tensor& durations,
              const Tensor& noise) const;
  TG_STATE(conv_pre, conv_proj, conv_dds, cond, flows, post_conv_pre, post_conv_proj, post_conv_dds, post_flows)

 private:
  Tensor condition(const Tensor& hidden, const Tensor& mask, const Tensor& speaker) const;
};

/// Guesses durations.
struct VitsDurations {
  nn::Conv2d conv_1;
  nn::LayerNorm norm_1;
  nn::Conv2d conv_2;
  nn::LayerNorm norm_2;
  nn::Conv2d proj;
  std::optional<nn::Conv2d> cond;
  double dropout;
  explicit VitsDurations(const VitsOptions& o);
  /// Returns logarithms of durations (batch, 1, time).
  Tensor operator()(const Tensor& hidden, const Tensor& mask, const Tensor& speaker) const;
  TG_STATE(conv_1, norm_1, conv_2, norm_2, proj, cond)
};

}  // namespace tg::models
