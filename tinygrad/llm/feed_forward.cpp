/// \file Dense networks and mixtures of experts.
#include "tinygrad/llm/feed_forward.h"

#include <algorithm>
#include <limits>

namespace tg::llm {

Tensor activate(const Tensor& x, Activation a) {
  switch (a) {
    case Activation::kSilu: return x.silu();
    case Activation::kGelu: return x.gelu();
    case Activation::kReluSquared: return x.relu().square();
  }
  return x;
}

DenseNetwork::DenseNetwork(const Weights& w, const std::string& p, const std::string& suffix, int64_t hidden)
    : activation_(w.config().activation) {
  const int64_t dim = w.config().dim;
  const std::string down = p + "ffn_down" + suffix;
  const AxisRange units = w.hidden_units(down, hidden);
  hidden_ = units.size();
  gate_ = w.find_projection(p + "ffn_gate" + suffix, hidden, dim);
  if (gate_.defined()) gate_ = gate_.outputs_of({units});
  const std::string up = p + "ffn_up" + suffix;
  const std::vector<int64_t> size = w.shape(up + ".weight");
  const bool joined = !gate_.defined() && size.size() == 2 && size[0] == 2 * hidden;
  up_ = joined ? w.projection(up, 2 * hidden, dim).outputs_of({units, units.moved(hidden)})
               : w.projection(up, hidden, dim).outputs_of({units});
  down_ = w.projection(down, dim, hidden).inputs_of(units);
}

Tensor DenseNetwork::operator()(const Tensor& x) const {
  if (gate_.defined()) return down_((activate(gate_(x), activation_) * up_(x)).contiguous());
  const Tensor up = up_(x);
  if (up.shape(-1) == hidden_) return down_(activate(up, activation_).contiguous());
  return down_((activate(up.slice(-1, 0, hidden_), activation_) * up.slice(-1, hidden_, 2 * hidden_)).contiguous());
}

ExpertNetwork::ExpertNetwork(const Weights& w, const std::string& p)
    : config_(w.config().experts), activation_(w.config().activation) {
  ExpertConfig& e = config_;
  const int64_t dim = w.config().dim;
  router_ = w.projection(p + "ffn_gate_inp", e.count, dim);
  selection_bias_ = w.find_vector(p + "exp_probs_b.bias", e.count);
  if (e.hidden_dim == 0) {
    const std::vector<int64_t> size = w.shape(p + "ffn_up_exps.weight");
    if (size.size() == 3 && size[1] <= kMaxDim) e.hidden_dim = size[1];
  }
  const AxisRange units = w.hidden_units(p + "ffn_down_exps", e.hidden_dim);
  gate_ = w.matrix(p + "ffn_gate_exps.weight", {e.count, e.hidden_dim, dim}).part(1, {&units, 1});
  up_ = w.matrix(p + "ffn_up_exps.weight", {e.count, e.hidden_dim, dim}).part(1, {&units, 1});
  down_ = w.matrix(p + "ffn_down_exps.weight", {e.count, dim, e.hidden_dim}).part(2, {&units, 1});
  const std::vector<int64_t> shared = w.shape(p + "ffn_up_shexp.weight");
  if (shared.size() == 2) shared_.emplace(w, p, "_shexp", shared[0]);
  if (w.has(p + "ffn_gate_inp_shexp.weight")) {
    const bool row = w.shape(p + "ffn_gate_inp_shexp.weight").size() == 2;
    shared_gate_ = w.values(p + "ffn_gate_inp_shexp.weight", row ? Shape{1, dim} : Shape{dim}).reshape(dim);
  }
}

/// Returns scores (tokens, experts) with -infinity for experts of groups that are not among the best.
Tensor ExpertNetwork::open_groups(const Tensor& scores) const {
  const ExpertConfig& e = config_;
  if (e.groups == e.groups_used) return scores;
  const Tensor grouped = scores.unflatten(-1, {e.groups, e.count / e.groups});
  // With a bias for choosing, a group is as good as its two best experts.
  const int64_t best = selection_bias_.defined() ? std::min<int64_t>(2, e.count / e.groups) : 1;
  const Tensor worth = grouped.topk(best, -1).first.sum(-1);
  const Tensor chosen = worth.topk(e.groups_used, -1).second;
  const Tensor open = (chosen.unsqueeze(-1) == Tensor::arange(e.groups)).any(-2);
  return open.unsqueeze(-1).where(grouped, -std::numeric_limits<double>::infinity()).flatten(-2);
}

ExpertNetwork::Choice ExpertNetwork::route(const Tensor& x) const {
  const ExpertConfig& e = config_;
  const Tensor logits = router_(x);
  Tensor scores = logits;
  if (e.gating == ExpertGating::kSoftmax) scores = logits.softmax(-1);
  else if (e.gating == ExpertGating::kSigmoid) scores = logits.sigmoid();
  else if (e.gating == ExpertGating::kSqrtSoftplus) scores = logits.softplus().sqrt();
  scores = scores.contiguous();
  const Tensor worth = open_groups(selection_bias_.defined() ? scores + selection_bias_ : scores);
  const Tensor experts = worth.topk(e.used, -1).second.contiguous();
  Tensor weights = scores.gather(-1, experts);
  if (e.gating == ExpertGating::kSoftmaxOfSelected) weights = weights.softmax(-1);
  if (e.normalize) weights = weights / weights.sum(-1, true);
  return {experts, (weights * e.scale).contiguous()};
}

/// Returns the sum over the chosen experts: x (tokens, dim). Their matrices are read once for each token.
Tensor ExpertNetwork::by_token(const Tensor& x, const Choice& c) const {
  const auto product = [&](const PackedMatrix& m, const Tensor& in) {  // in (tokens, 1 or used, size)
    return (m.rows(c.experts) * in.unsqueeze(-2)).sum(-1);
  };
  const Tensor each = x.unsqueeze(1);
  const Tensor hidden = activate(product(gate_, each), activation_) * product(up_, each);
  return (product(down_, hidden.contiguous()) * c.weights.unsqueeze(-1)).sum(1);
}

/// The same with every expert computed for every token: each matrix is read once.
Tensor ExpertNetwork::all_experts(const Tensor& x, const Choice& c) const {
  const auto product = [](const PackedMatrix& m, const Tensor& in) { return in.matmul(m.values().transpose(-1, -2)); };
  const Tensor each = x.unsqueeze(0);  // (experts, tokens, size)
  const Tensor hidden = activate(product(gate_, each), activation_) * product(up_, each);
  // (tokens, experts)
  const Tensor weight =
      (c.experts.unsqueeze(-1) == Tensor::arange(config_.count)).where(c.weights.unsqueeze(-1), 0.0).sum(1);
  return (product(down_, hidden.contiguous()) * weight.T().unsqueeze(-1)).sum(0);
}

Tensor ExpertNetwork::operator()(const Tensor& x) const {
  const Tensor tokens = x.flatten(0, 1).contiguous();
  const Choice c = route(tokens);
  const bool many = tokens.shape(0) * config_.used >= 2 * config_.count;
  Tensor y = many ? all_experts(tokens, c) : by_token(tokens, c);
  if (shared_) {
    const Tensor shared = (*shared_)(tokens);
    y = y + (shared_gate_.defined() ? shared * (tokens * shared_gate_).sum(-1, true).sigmoid() : shared);
  }
  return y.reshape(x.shape());
}

}  // namespace tg::llm
