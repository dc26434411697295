/// \file Attention over a cache.
#include "tinygrad/llm/attention.h"

#include <cmath>
#include <limits>

#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

/// Bool (batch, 1, 1, time, blocks, kCacheBlock): the row sees the position.
Tensor seen(const StepRows& rows, int64_t window) {
  const Tensor inside = Tensor::arange(kCacheBlock, {.dtype = dtypes::int32});
  const Tensor blocks = rows.block_numbers();
  const Tensor keys = blocks.reshape(Shape{blocks.shape(0), 1, 1, 1, rows.blocks, 1}) * kCacheBlock + inside;
  const Tensor at = rows.positions.reshape(Shape{rows.positions.shape(0), 1, 1, rows.positions.shape(1), 1, 1});
  const Tensor before = keys <= at;
  return window == 0 ? before : before & (keys > at - window);
}

class Attention : public Mixer {
 public:
  Attention(const Weights& w, const std::string& p, const LayerConfig& layer, const RopeTables& ropes,
            const CacheOptions& cache);
  Tensor operator()(const Tensor& x, const StepContext& step) override;
  bool divided() const override { return true; }
  int64_t cache_bytes() const override { return cache_.bytes(); }
  void copy(int64_t from, int64_t to, int64_t tokens) override { cache_.copy(from, to, tokens); }

 private:
  struct Heads {
    Tensor q, k, v, gate;  ///< (batch, time, heads, dim); the gate (batch, time, heads * dim) or undefined
  };
  Heads project(const Tensor& x) const;
  Tensor normed(const Tensor& t, const std::optional<Norm>& norm, int64_t heads) const;

  const ModelConfig& config_;
  LayerConfig layer_;
  ModelShare::Heads mine_;  ///< those that this process computes
  int64_t heads_, kv_heads_;
  Projection qkv_, q_, k_, v_, out_;
  std::optional<Norm> q_norm_, k_norm_;
  const RopeTable* rope_ = nullptr;
  KeyValueCache cache_;
};

Attention::Attention(const Weights& w, const std::string& p, const LayerConfig& layer, const RopeTables& ropes,
                     const CacheOptions& cache)
    : config_(w.config()),
      layer_(layer),
      mine_(w.share().heads(layer.heads, layer.kv_heads)),
      heads_(mine_.queries.size()),
      kv_heads_(mine_.keys.size()),
      cache_(attention_cache(w.config(), layer, w.share(), cache), cache.dtype, w.device()) {
  const ModelConfig& c = config_;
  const int64_t q = layer.heads * c.head_dim, k = layer.kv_heads * c.head_dim, v = layer.kv_heads * c.value_dim;
  const AxisRange my_q = mine_.queries.scaled(c.head_dim), my_k = mine_.keys.scaled(c.head_dim),
                  my_v = mine_.keys.scaled(c.value_dim);
  qkv_ = w.find_projection(p + "attn_qkv", q + k + v, c.dim);
  if (qkv_.defined()) {
    if (!w.share().whole()) qkv_ = qkv_.outputs_of({my_q, my_k.moved(q), my_v.moved(q + k)});
  } else {
    const int64_t gates = c.query_gate ? 2 : 1;
    q_ = w.projection(p + "attn_q", gates * q, c.dim).outputs_of({my_q.scaled(gates)});
    k_ = w.projection(p + "attn_k", k, c.dim).outputs_of({my_k});
    v_ = w.projection(p + "attn_v", v, c.dim).outputs_of({my_v});
  }
  out_ = w.projection(p + "attn_output", c.dim, layer.heads * c.value_dim).inputs_of(mine_.queries.scaled(c.value_dim));
  // A norm of each head, or of all heads together.
  const auto norm = [&](const std::string& name, int64_t all, AxisRange range, int64_t sharers) -> std::optional<Norm> {
    const std::vector<int64_t> size = w.shape(name + ".weight");
    const bool by_head = size.size() == 1 && size[0] == c.head_dim;
    const std::optional<Norm> n = w.find_norm(name, by_head ? c.head_dim : all);
    return n && !by_head ? n->part(range, w.share(), sharers) : n;
  };
  q_norm_ = norm(p + "attn_q_norm", q, my_q, 1);
  k_norm_ = norm(p + "attn_k_norm", k, my_k, mine_.sharers);
  if (layer.rope) rope_ = layer.local_rope && ropes.local ? &*ropes.local : ropes.all ? &*ropes.all : nullptr;
}

Tensor Attention::normed(const Tensor& t, const std::optional<Norm>& norm, int64_t heads) const {
  const Tensor split = t.unflatten(-1, {heads, t.shape(-1) / heads});
  if (!norm) return split;
  const bool by_head = norm->divided_size == 0 && norm->weight.shape(0) == split.shape(-1);
  return by_head ? (*norm)(split) : (*norm)(t).unflatten(-1, {heads, t.shape(-1) / heads});
}

Attention::Heads Attention::project(const Tensor& x) const {
  const ModelConfig& c = config_;
  const int64_t q_size = heads_ * c.head_dim, k_size = kv_heads_ * c.head_dim, v_size = kv_heads_ * c.value_dim;
  Tensor q, k, v, gate;
  if (qkv_.defined()) {
    const Tensors parts = qkv_(x).split({q_size, k_size, v_size}, -1);
    q = parts[0];
    k = parts[1];
    v = parts[2];
  } else {
    q = q_(x);
    k = k_(x);
    v = v_(x);
  }
  if (c.query_gate) {
    const Tensor both = q.unflatten(-1, {heads_, 2, c.head_dim});
    q = both.slice(-2, 0, 1).flatten(-3);
    gate = both.slice(-2, 1, 2).flatten(-3);
  }
  if (c.clamp_qkv != 0)
    for (Tensor* t : {&q, &k, &v}) *t = t->clamp(Tensor(-c.clamp_qkv), Tensor(c.clamp_qkv));
  return {normed(q, q_norm_, heads_), normed(k, k_norm_, kv_heads_), v.unflatten(-1, {kv_heads_, c.value_dim}), gate};
}

Tensor Attention::operator()(const Tensor& x, const StepContext& step) {
  Heads h = project(x);
  if (rope_) {
    const RopeTable::Rows& rows = layer_.local_rope && step.rope_local.cos.defined() ? step.rope_local : step.rope;
    h.q = rope_->turn(h.q, rows);
    h.k = rope_->turn(h.k, rows);
  }
  const StepRows& read = layer_.window == 0 ? step.rows : step.windowed;
  const KeyValueCache::Filled kv = cache_.write(read, h.k, h.v);
  const double scale =
      config_.attention_scale != 0 ? config_.attention_scale : 1 / std::sqrt(static_cast<double>(config_.head_dim));
  const Tensor y = attend(h.q, kv.keys, kv.values, read, {scale, config_.attention_softcap, layer_.window}).flatten(-2);
  return out_(h.gate.defined() ? y * h.gate.sigmoid() : y);
}

/// Keys and values of all heads are one vector per token, which the cache holds once; queries are brought to its space.
class LatentAttention : public Mixer {
 public:
  LatentAttention(const Weights& w, const std::string& p, const LayerConfig& layer, const RopeTables& ropes,
                  const CacheOptions& cache);
  Tensor operator()(const Tensor& x, const StepContext& step) override;
  bool divided() const override { return true; }
  int64_t cache_bytes() const override { return cache_.bytes(); }
  void copy(int64_t from, int64_t to, int64_t tokens) override { cache_.copy(from, to, tokens); }

 private:
  Tensor queries(const Tensor& x) const;

  const ModelConfig& config_;
  int64_t heads_, rank_, rope_dim_, plain_dim_;
  Projection q_, q_a_, q_b_, kv_a_, out_;
  std::optional<Norm> q_norm_;
  Norm kv_norm_;
  Tensor key_of_latent_;    ///< (heads, plain_dim, rank)
  Tensor value_of_latent_;  ///< (heads, value_dim, rank)
  const RopeTable* rope_;
  KeyValueCache cache_;
};

LatentAttention::LatentAttention(const Weights& w, const std::string& p, const LayerConfig& layer,
                                 const RopeTables& ropes, const CacheOptions& cache)
    : config_(w.config()),
      heads_(w.share().of(layer.heads, "heads").size()),
      rank_(config_.latent.kv_rank),
      rope_dim_(config_.rope.dims),
      plain_dim_(config_.head_dim - rope_dim_),
      rope_(ropes.all ? &*ropes.all : nullptr),
      cache_(latent_attention_cache(w.config(), cache), cache.dtype, w.device()) {
  const ModelConfig& c = config_;
  TG_CHECK(FormatError, plain_dim_ > 0, "[gguf] ", c.architecture, ": rope.dimension_count is ", rope_dim_,
           ", expected less than the ", c.head_dim, " values of a key");
  const int64_t heads = layer.heads;
  const AxisRange mine = w.share().of(heads, "heads");
  if (c.latent.q_rank > 0) {
    q_a_ = w.projection(p + "attn_q_a", c.latent.q_rank, c.dim);
    q_norm_ = w.norm(p + "attn_q_a_norm", c.latent.q_rank);
    q_b_ = w.projection(p + "attn_q_b", heads * c.head_dim, c.latent.q_rank).outputs_of({mine.scaled(c.head_dim)});
  } else q_ = w.projection(p + "attn_q", heads * c.head_dim, c.dim).outputs_of({mine.scaled(c.head_dim)});
  kv_a_ = w.projection(p + "attn_kv_a_mqa", rank_ + rope_dim_, c.dim);
  kv_norm_ = w.norm(p + "attn_kv_a_norm", rank_);
  const auto my_heads = [&](const Tensor& t) { return t.slice(0, mine.begin, mine.end); };
  if (w.has(p + "attn_k_b.weight")) {
    key_of_latent_ = my_heads(w.values(p + "attn_k_b.weight", {heads, rank_, plain_dim_})).transpose(1, 2);
    value_of_latent_ = my_heads(w.values(p + "attn_v_b.weight", {heads, c.value_dim, rank_}));
  } else {
    const Tensor both = my_heads(w.values(p + "attn_kv_b.weight", {heads * (plain_dim_ + c.value_dim), rank_})
                                     .unflatten(0, {heads, plain_dim_ + c.value_dim}));
    key_of_latent_ = both.slice(1, 0, plain_dim_);
    value_of_latent_ = both.slice(1, plain_dim_, plain_dim_ + c.value_dim);
  }
  out_ = w.projection(p + "attn_output", c.dim, heads * c.value_dim).inputs_of(mine.scaled(c.value_dim));
}

Tensor LatentAttention::queries(const Tensor& x) const { return q_.defined() ? q_(x) : q_b_((*q_norm_)(q_a_(x))); }

Tensor LatentAttention::operator()(const Tensor& x, const StepContext& step) {
  const Tensor q = queries(x).unflatten(-1, {heads_, config_.head_dim});
  const Tensor plain = q.slice(-1, 0, plain_dim_);
  // (batch, time, heads, 1, plain) @ (heads, plain, rank)
  const Tensor query = plain.unsqueeze(-2).matmul(key_of_latent_).squeeze(-2);
  const auto turned = [&](const Tensor& t) { return rope_ ? rope_->turn(t, step.rope) : t; };
  const Tensor low = kv_a_(x);
  const Tensor key = Tensor::cat(
      {kv_norm_(low.slice(-1, 0, rank_)).unsqueeze(2), turned(low.slice(-1, rank_, rank_ + rope_dim_).unsqueeze(2))},
      -1);
  const Tensor keys = cache_.write(step.rows, key, Tensor()).keys;
  const double stretch = 1 + config_.rope.yarn_log_multiplier * std::log(std::max(1.0, config_.rope.factor));
  const Tensor y =
      attend(Tensor::cat({query, turned(q.slice(-1, plain_dim_, config_.head_dim))}, -1), keys,
             keys.slice(-2, 0, rank_).transpose(-1, -2), step.rows,
             {stretch * stretch / std::sqrt(static_cast<double>(config_.head_dim)), config_.attention_softcap, 0});
  return out_(y.unsqueeze(-2).matmul(value_of_latent_.transpose(1, 2)).squeeze(-2).flatten(-2));
}

}  // namespace

Tensor attend(const Tensor& q, const Tensor& keys, const Tensor& values, const StepRows& rows, const ScoreOptions& o) {
  const int64_t batch = q.shape(0), time = q.shape(1), groups = keys.shape(1);
  const SInt blocks = keys.shape()[2];
  const int64_t dim = q.shape(3), heads = q.shape(2), shared = heads / groups, value_dim = values.shape(4);
  // (batch, groups, heads of a group, time, blocks, dim, positions of a block)
  const Tensor query = q.reshape(Shape{batch, time, groups, shared, dim})
                           .permute(0, 2, 3, 1, 4)
                           .contiguous()
                           .reshape(Shape{batch, groups, shared, time, 1, dim, 1});
  Tensor scores =
      (query * keys.to_float().reshape(Shape{batch, groups, 1, 1, blocks, dim, kCacheBlock})).sum(5) * o.scale;
  if (o.softcap != 0) scores = (scores / o.softcap).tanh() * o.softcap;
  scores = seen(rows, o.window).where(scores, -std::numeric_limits<double>::infinity()).contiguous();
  const Tensor power = (scores - scores.max({.axis = {4, 5}, .keepdim = true})).exp();
  const Tensor weighed =
      (power.unsqueeze(-1) * values.to_float().reshape(Shape{batch, groups, 1, 1, blocks, kCacheBlock, value_dim}))
          .sum({4, 5});
  const Tensor y = weighed / power.sum({4, 5}).unsqueeze(-1);
  return y.permute(0, 3, 1, 2, 4).reshape(Shape{batch, time, heads, value_dim});
}

KeyValueCache::Sizes attention_cache(const ModelConfig& config, const LayerConfig& layer, const ModelShare& share,
                                     const CacheOptions& cache) {
  const int64_t heads = share.heads(layer.heads, layer.kv_heads).keys.size();
  return {cache.sequences, heads, cache.blocks, config.head_dim, config.value_dim};
}
KeyValueCache::Sizes latent_attention_cache(const ModelConfig& config, const CacheOptions& cache) {
  return {cache.sequences, 1, cache.blocks, config.latent.kv_rank + config.rope.dims, 0};
}

std::unique_ptr<Mixer> make_attention(const Weights& w, const std::string& prefix, const LayerConfig& layer,
                                      const RopeTables& ropes, const CacheOptions& cache) {
  return std::make_unique<Attention>(w, prefix, layer, ropes, cache);
}
std::unique_ptr<Mixer> make_latent_attention(const Weights& w, const std::string& prefix, const LayerConfig& layer,
                                             const RopeTables& ropes, const CacheOptions& cache) {
  return std::make_unique<LatentAttention>(w, prefix, layer, ropes, cache);
}

}  // namespace tg::llm
