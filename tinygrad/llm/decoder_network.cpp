/// \file The parts of a decoder.
#include "tinygrad/llm/decoder_network.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/base/task_progress.h"
#include "tinygrad/llm/delta_net.h"

namespace tg::llm {

DecoderLayer::DecoderLayer(const Weights& w, int64_t number, const RopeTables& ropes, const CacheOptions& cache)
    : config_(w.config()), share_(w.share()) {
  const ModelConfig& c = config_;
  const LayerConfig& layer = c.layers[static_cast<size_t>(number)];
  const std::string p = str("blk.", number, ".");
  before_mixer_ = w.find_norm(p + "attn_norm", c.dim);
  before_network_ = w.find_norm(p + "ffn_norm", c.dim);
  std::optional<Norm> post = w.find_norm(p + "post_attention_norm", c.dim);
  (c.post_norm_is_ffn_norm ? before_network_ : after_mixer_) = post;
  after_network_ = w.find_norm(p + "post_ffw_norm", c.dim);
  // Layers without any weight of a norm have norms without weights.
  if (!before_mixer_ && !after_mixer_) before_mixer_ = Norm{c.norm, c.norm_eps, {}, {}};
  if (!before_network_ && !after_network_ && !c.parallel_blocks) before_network_ = Norm{c.norm, c.norm_eps, {}, {}};
  mixer_ = layer.recurrent         ? make_delta_net(w, p, cache.sequences)
           : c.latent.kv_rank != 0 ? make_latent_attention(w, p, layer, ropes, cache)
                                   : make_attention(w, p, layer, ropes, cache);
  if (layer.experts) experts_.emplace(w, p);
  else dense_.emplace(w, p, "", layer.hidden_dim);
}

Tensor DecoderLayer::residual(const Tensor& x, const Tensor& y, const std::optional<Norm>& norm) const {
  const Tensor added = norm ? (*norm)(y) : y;
  return (x + (config_.residual_scale == 1 ? added : added * config_.residual_scale)).contiguous();
}

Tensor DecoderLayer::operator()(const Tensor& x, const StepContext& step) const {
  const Tensor in = before_mixer_ ? (*before_mixer_)(x) : x;
  const Tensor mixed = (*mixer_)(in, step);
  const auto whole = [&](const Tensor& y) { return mixer_->divided() ? share_.sum(y) : y; };
  if (config_.parallel_blocks) {  // both parts in one sum
    const Tensor y = feed_forward(before_network_ ? (*before_network_)(x) : in);
    return residual(x, mixer_->divided() ? share_.sum(mixed + y) : mixed + share_.sum(y), std::nullopt);
  }
  const Tensor h = residual(x, whole(mixed), after_mixer_);
  return residual(h, share_.sum(feed_forward(before_network_ ? (*before_network_)(h) : h)), after_network_);
}

namespace {

/// Returns the factors a file brings for the frequencies of pairs; empty: none.
std::vector<float> frequency_factors(const Weights& w, int64_t max_context) {
  const ModelConfig& c = w.config();
  const char* name = "rope_freqs.weight";
  if (c.rope.scaling == RopeScaling::kLongRope)
    name = max_context > c.rope.original_context ? "rope_factors_long.weight" : "rope_factors_short.weight";
  if (!w.has(name)) return {};
  return w.vector(name, c.rope.dims / 2).to_vector<float>();
}

RopeTables rope_tables(const Weights& w, int64_t max_context, int64_t positions) {
  const ModelConfig& c = w.config();
  RopeTables tables;
  if (c.rope.pairs == RopePairs::kNone) return tables;
  tables.all.emplace(rope_frequencies(c.rope, frequency_factors(w, max_context)), c.rope.pairs, positions, w.device());
  if (std::any_of(c.layers.begin(), c.layers.end(), [](const LayerConfig& l) { return l.local_rope; }))
    tables.local.emplace(rope_frequencies(c.rope_local), c.rope_local.pairs, positions, w.device());
  return tables;
}

Tensor learned_positions(const Weights& w, int64_t max_context) {
  const ModelConfig& c = w.config();
  if (!c.learned_positions) return {};
  const std::vector<int64_t> size = w.shape("position_embd.weight");
  TG_CHECK(FormatError, !size.empty() && size[0] >= c.trained_context, "[gguf] ", w.file(),
           ": position_embd.weight has fewer rows than the context of ", c.trained_context);
  TG_CHECK(ValueError, max_context <= size[0], "[llm] got max_context ", max_context, ", expected at most the ",
           size[0], " positions the model knows");
  return w.values("position_embd.weight", {size[0], c.dim});
}

}  // namespace

SequenceMemory sequence_memory(const ModelConfig& c, const ModelShare& share, const CacheOptions& cache) {
  SequenceMemory memory;
  const CacheOptions block{cache.sequences, 1, cache.dtype};
  bool local = false;
  for (const LayerConfig& layer : c.layers) {
    local |= layer.local_rope;
    if (layer.recurrent) memory.fixed += delta_net_bytes(c.recurrent, cache.sequences);
    else if (c.latent.kv_rank != 0)
      memory.per_block += KeyValueCache::bytes_of(latent_attention_cache(c, block), cache.dtype);
    else memory.per_block += KeyValueCache::bytes_of(attention_cache(c, layer, share, block), cache.dtype);
  }
  const auto table = [](const RopeConfig& r) { return r.pairs == RopePairs::kNone ? 0 : RopeTable::bytes(r.dims); };
  memory.per_block += kCacheBlock * (table(c.rope) + (local ? table(c.rope_local) : 0));
  return memory;
}

DecoderNetwork::DecoderNetwork(const Weights& w, int64_t max_context, const CacheOptions& cache)
    : config_(w.config()), share_(w.share()), capacity_(cache.blocks * kCacheBlock) {
  const ModelConfig& c = config_;
  embeddings_ = w.matrix("token_embd.weight", {c.vocab_size, c.dim});
  position_embeddings_ = learned_positions(w, max_context);
  embedding_norm_ = w.find_norm("token_embd_norm", c.dim);
  output_norm_ = w.has("output_norm.weight") ? w.norm("output_norm", c.dim) : Norm{c.norm, c.norm_eps, {}, {}};
  output_ = w.has("output.weight") ? w.projection("output", c.vocab_size, c.dim) : Projection{embeddings_};
  output_ = output_.outputs_of({share_.padded_rows(c.vocab_size)});
  ropes_ = rope_tables(w, max_context, capacity_);
  layers_.reserve(c.layers.size());
  TaskProgress progress("loading layers", c.blocks());
  for (int64_t i = 0; i < c.blocks(); i++) {
    layers_.emplace_back(w, i, ropes_, cache);
    progress.advance();
  }
}

StepContext DecoderNetwork::context(const StepRows& rows, const StepRows& windowed, const Tensor& last) const {
  StepContext step{rows, windowed, {}, {}, rows.positions < capacity_, last};
  if (ropes_.all) step.rope = ropes_.all->rows(rows.positions);
  if (ropes_.local) step.rope_local = ropes_.local->rows(rows.positions);
  return step;
}

Tensor DecoderNetwork::embed(const Tensor& tokens, const StepContext& step) const {
  Tensor x = embeddings_.rows(tokens);
  if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
  if (position_embeddings_.defined()) {
    const Tensor known = step.rows.positions.minimum(position_embeddings_.shape(0) - 1);  // those of a token
    x = x + position_embeddings_[known];
  }
  if (embedding_norm_) x = (*embedding_norm_)(x);
  return x.contiguous();
}

Tensor DecoderNetwork::logits(const Tensor& x) const {
  const ModelConfig& c = config_;
  Tensor y = output_(output_norm_(x));
  if (c.logit_scale != 1) y = y * c.logit_scale;
  if (c.logit_softcap != 0) y = (y / c.logit_softcap).tanh() * c.logit_softcap;
  return share_.join(y, c.vocab_size);
}

}  // namespace tg::llm
