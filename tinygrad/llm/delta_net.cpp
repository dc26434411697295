/// \file Gated delta net, one token after another.
#include "tinygrad/llm/delta_net.h"

#include <cmath>

namespace tg::llm {
namespace {

class DeltaNet : public Mixer {
 public:
  DeltaNet(const Weights& w, const std::string& p, int64_t sequences);
  Tensor operator()(const Tensor& x, const StepContext& step) override;
  bool divided() const override { return false; }
  int64_t cache_bytes() const override { return delta_net_bytes(r_, conv_state_.shape(0)); }
  void copy(int64_t from, int64_t to, int64_t) override {
    for (const Tensor& t : {conv_state_, state_}) {
      t.at(to) = Tensor(t(from));
      t.realize();
    }
  }

 private:
  /// What the convolution reads of each token, and the gate of the output.
  struct Inputs {
    Tensor qkv, gate, alpha, beta;
  };
  Inputs project(const Tensor& x) const;
  Tensor convolved(const Tensor& qkv, const StepContext& step, const Tensor& fresh);
  Tensor recur(const Tensor& mixed, const Tensor& decay, const Tensor& learn, const StepContext& step,
               const Tensor& fresh);

  RecurrentConfig r_;
  int64_t key_dim_, value_dim_, keys_, channels_;
  Projection qkv_, gate_, alpha_, beta_, qkvz_, beta_alpha_, out_;
  Tensor conv_, dt_bias_, a_;
  Norm norm_;
  Tensor conv_state_;  ///< (sequences, conv_kernel - 1, channels)
  Tensor state_;       ///< (sequences, heads, values, keys)
};

DeltaNet::DeltaNet(const Weights& w, const std::string& p, int64_t sequences) : r_(w.config().recurrent) {
  const int64_t dim = w.config().dim;
  key_dim_ = r_.state_size;
  value_dim_ = r_.inner_dim / r_.heads;
  keys_ = key_dim_ * r_.groups;
  channels_ = r_.inner_dim + 2 * keys_;
  qkvz_ = w.find_projection(p + "ssm_in", channels_ + r_.inner_dim, dim);
  if (!qkvz_.defined()) {
    qkv_ = w.projection(p + "attn_qkv", channels_, dim);
    gate_ = w.projection(p + "attn_gate", r_.inner_dim, dim);
  }
  beta_alpha_ = w.find_projection(p + "ssm_ba", 2 * r_.heads, dim);
  if (!beta_alpha_.defined()) {
    alpha_ = w.projection(p + "ssm_alpha", r_.heads, dim);
    beta_ = w.projection(p + "ssm_beta", r_.heads, dim);
  }
  conv_ = w.values(p + "ssm_conv1d.weight", {channels_, r_.conv_kernel});
  dt_bias_ = w.vector(p + "ssm_dt.bias", r_.heads);
  a_ = w.vector(p + "ssm_a", r_.heads);
  norm_ = w.norm(p + "ssm_norm", value_dim_);
  out_ = w.projection(p + "ssm_out", dim, r_.inner_dim);
  conv_state_ = zeroed({sequences, r_.conv_kernel - 1, channels_}, dtypes::float32, w.device());
  state_ = zeroed({sequences, r_.heads, value_dim_, key_dim_}, dtypes::float32, w.device());
}

DeltaNet::Inputs DeltaNet::project(const Tensor& x) const {
  Inputs in;
  const int64_t groups = r_.groups, per_group = r_.heads / groups, value = per_group * value_dim_;
  if (qkvz_.defined()) {
    // By group: its query, key, values and gates.
    const Tensors parts =
        qkvz_(x).unflatten(-1, {groups, 2 * key_dim_ + 2 * value}).split({key_dim_, key_dim_, value, value}, -1);
    in.qkv = Tensor::cat({parts[0].flatten(-2), parts[1].flatten(-2), parts[2].flatten(-2)}, -1);
    in.gate = parts[3].flatten(-2);
  } else {
    in.qkv = qkv_(x);
    in.gate = gate_(x);
  }
  if (beta_alpha_.defined()) {
    const Tensors parts = beta_alpha_(x).unflatten(-1, {groups, 2 * per_group}).split({per_group, per_group}, -1);
    in.beta = parts[0].flatten(-2);
    in.alpha = parts[1].flatten(-2);
  } else {
    in.alpha = alpha_(x);
    in.beta = beta_(x);
  }
  return in;
}

/// Returns queries, keys and values, each the sum of the last tokens' with a weight for each channel; moves the state.
Tensor DeltaNet::convolved(const Tensor& qkv, const StepContext& step, const Tensor& fresh) {
  const int64_t time = qkv.shape(1), width = r_.conv_kernel;
  const Tensor before = fresh.reshape(Shape{qkv.shape(0), 1, 1}).where(0.0, conv_state_[step.rows.sequences]);
  const Tensor window = Tensor::cat({before, qkv}, 1).contiguous();
  // The last width - 1 rows that are tokens: those after row `last`.
  if (width > 1) {
    const Tensor rows = step.last.unsqueeze(-1) + Tensor::arange(1, width, {.dtype = dtypes::int32});
    const Tensor at = rows.unsqueeze(-1).expand(Shape{qkv.shape(0), width - 1, channels_});
    conv_state_.at(step.rows.sequences) = window.gather(1, at);
  }
  Tensor sum = window.slice(1, 0, time) * conv_.slice(1, 0, 1).squeeze(1);
  for (int64_t i = 1; i < width; i++) sum = sum + window.slice(1, i, i + time) * conv_.slice(1, i, i + 1).squeeze(1);
  return sum.silu().contiguous();
}

Tensor DeltaNet::recur(const Tensor& mixed, const Tensor& decay, const Tensor& learn, const StepContext& step,
                       const Tensor& fresh) {
  const int64_t batch = mixed.shape(0), time = mixed.shape(1), heads = r_.heads;
  const Tensors parts = mixed.split({keys_, keys_, r_.inner_dim}, -1);
  const auto unit = [&](const Tensor& t) {  // (batch, time, heads, 1, keys)
    const Tensor k = t.unflatten(-1, {r_.groups, key_dim_});
    const Tensor n = k * (k.square().sum(-1, true) + 1e-6).rsqrt();
    return n.repeat_interleave(heads / r_.groups, 2).unsqueeze(-2).contiguous();
  };
  const Tensor q = unit(parts[0]) * (1 / std::sqrt(static_cast<double>(key_dim_))), k = unit(parts[1]),
               v = parts[2].unflatten(-1, {heads, value_dim_});
  Tensor state = fresh.reshape(Shape{batch, 1, 1, 1}).where(0.0, state_[step.rows.sequences]);
  Tensors out;
  for (int64_t t = 0; t < time; t++) {
    const auto at = [&](const Tensor& x) { return x.slice(1, t, t + 1).squeeze(1); };
    state = state * at(decay).unsqueeze(-1).unsqueeze(-1);
    const Tensor error = (at(v) - (state * at(k)).sum(-1)) * at(learn).unsqueeze(-1);
    state = (state + error.unsqueeze(-1) * at(k)).contiguous();
    out.push_back((state * at(q)).sum(-1));
  }
  state_.at(step.rows.sequences) = state;
  return Tensor::stack(out, 1).contiguous();
}

Tensor DeltaNet::operator()(const Tensor& x, const StepContext& step) {
  const Inputs in = project(x);
  // Sequences that begin here forget what their slot held; rows that are no tokens change nothing.
  const Tensor fresh = step.rows.positions.slice(1, 0, 1).squeeze(1) == 0, valid = step.valid.unsqueeze(-1);
  const Tensor decay = valid.where(((in.alpha + dt_bias_).softplus() * a_).exp(), 1.0).contiguous();
  const Tensor learn = valid.where(in.beta.sigmoid(), 0.0).contiguous();
  const Tensor y = recur(convolved(in.qkv, step, fresh), decay, learn, step, fresh);
  const Tensor gate = in.gate.unflatten(-1, {r_.heads, value_dim_}).silu();
  return out_((norm_(y) * gate).flatten(-2));
}

}  // namespace

int64_t delta_net_bytes(const RecurrentConfig& c, int64_t sequences) {
  const int64_t channels = c.inner_dim + 2 * c.state_size * c.groups;
  return sequences * ((c.conv_kernel - 1) * channels + c.inner_dim * c.state_size) * dtypes::float32.itemsize();
}

std::unique_ptr<Mixer> make_delta_net(const Weights& w, const std::string& prefix, int64_t sequences) {
  return std::make_unique<DeltaNet>(w, prefix, sequences);
}

}  // namespace tg::llm
