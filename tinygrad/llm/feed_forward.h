/// \file Feed-forward networks of a decoder's layer: dense, gated, or a mixture of experts.
#pragma once
#include <optional>
#include <string>

#include "tinygrad/llm/model_config.h"
#include "tinygrad/llm/weights.h"

namespace tg::llm {

Tensor activate(const Tensor& x, Activation a);

/// down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate. One matrix may hold gate and up. Where processes
/// share the model, each has a part of the hidden units: their results' sum is the result.
class DenseNetwork {
 public:
  DenseNetwork(const Weights& w, const std::string& prefix, const std::string& suffix, int64_t hidden);
  Tensor operator()(const Tensor& x) const;

 private:
  Activation activation_;
  int64_t hidden_;
  Projection gate_, up_, down_;
};

/// Each token is computed by the experts its router chooses, and by shared ones if there are any. Where processes share
/// the model, each has a part of every expert's hidden units: their results' sum is the result.
class ExpertNetwork {
 public:
  ExpertNetwork(const Weights& w, const std::string& prefix);
  Tensor operator()(const Tensor& x) const;

 private:
  struct Choice {
    Tensor experts, weights;  ///< (tokens, used): int32, float32
  };
  Choice route(const Tensor& x) const;
  Tensor open_groups(const Tensor& scores) const;
  Tensor by_token(const Tensor& x, const Choice& c) const;
  Tensor all_experts(const Tensor& x, const Choice& c) const;

  ExpertConfig config_;
  Activation activation_;
  Projection router_;
  Tensor selection_bias_;          ///< added to scores for choosing only; may be undefined
  PackedMatrix gate_, up_, down_;  ///< (experts, out, in)
  std::optional<DenseNetwork> shared_;
  Tensor shared_gate_;  ///< (dim), or undefined
};

}  // namespace tg::llm
