/// \file The decoder: layers, steps of compiled shapes, and the book of sequences.
#include "tinygrad/llm/language_model.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/llm/attention.h"
#include "tinygrad/llm/delta_net.h"
#include "tinygrad/llm/feed_forward.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::llm {
namespace {

constexpr int64_t kDefaultContext = 4096;  // of models that were trained for more
constexpr int64_t kMaxSequences = 1024;
constexpr int64_t kShortChunk = 32, kLongChunk = 256;  // tokens of a prompt computed at once

/// One layer: norms, what mixes tokens, and a feed-forward network.
class Layer {
 public:
  Layer(const Weights& w, int64_t number, const RopeTables& ropes, const CacheOptions& cache);
  Tensor operator()(const Tensor& x, const StepContext& step) const;
  Mixer& mixer() const { return *mixer_; }

 private:
  Tensor feed_forward(const Tensor& x) const { return experts_ ? (*experts_)(x) : (*dense_)(x); }
  Tensor residual(const Tensor& x, const Tensor& y, const std::optional<Norm>& norm) const;

  const ModelConfig& config_;
  std::optional<Norm> before_mixer_, before_network_, after_mixer_, after_network_;
  std::unique_ptr<Mixer> mixer_;
  std::optional<DenseNetwork> dense_;
  std::optional<ExpertNetwork> experts_;
};

Layer::Layer(const Weights& w, int64_t number, const RopeTables& ropes, const CacheOptions& cache)
    : config_(w.config()) {
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

Tensor Layer::residual(const Tensor& x, const Tensor& y, const std::optional<Norm>& norm) const {
  const Tensor added = norm ? (*norm)(y) : y;
  return (x + (config_.residual_scale == 1 ? added : added * config_.residual_scale)).contiguous();
}

Tensor Layer::operator()(const Tensor& x, const StepContext& step) const {
  const Tensor in = before_mixer_ ? (*before_mixer_)(x) : x;
  const Tensor mixed = (*mixer_)(in, step);
  if (config_.parallel_blocks)
    return residual(x, mixed + feed_forward(before_network_ ? (*before_network_)(x) : in), std::nullopt);
  const Tensor h = residual(x, mixed, after_mixer_);
  return residual(h, feed_forward(before_network_ ? (*before_network_)(h) : h), after_network_);
}

/// What a step gives back.
enum class StepResult : uint8_t { kNothing, kLast, kAll, kHidden };

/// Shapes of a step: each is captured by itself.
struct StepShape {
  int64_t batch, time;
  StepResult result;
  auto operator<=>(const StepShape&) const = default;
};
struct StepInput {
  std::vector<int32_t> tokens, positions;  ///< (batch, time)
  std::vector<int32_t> sequences, last;    ///< (batch)
};

/// A step of tokens, positions, sequences and last rows; the variable is the number of filled blocks.
using StepFunction =
    std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const BoundVariable&)>;

class Decoder : public LanguageModel {
 public:
  Decoder(const io::GgufFile& file, ModelConfig config, const ModelOptions& o);

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t cache_bytes() const override;
  std::span<const int32_t> tokens(int64_t s) const override { return sequence(s); }
  int64_t rewindable(int64_t s, int64_t tokens) const override;
  void rewind(int64_t s, int64_t tokens) override;
  void copy(int64_t from, int64_t to, int64_t tokens) override;
  std::span<const float> prefill(int64_t s, std::span<const int32_t> tokens) override;
  std::vector<float> prefill_all(int64_t s, std::span<const int32_t> tokens) override;
  std::vector<float> prefill_hidden(int64_t s, std::span<const int32_t> tokens) override;
  std::span<const float> decode(std::span<const NextToken> next) override;

 private:
  const std::vector<int32_t>& sequence(int64_t s) const;
  void check_tokens(int64_t s, std::span<const int32_t> tokens, const char* op) const;
  int64_t chunk_for(int64_t left) const;
  void append(int64_t s, std::span<const int32_t> tokens, StepResult last_result,
              const std::function<void(int64_t)>& seen);
  std::vector<float> rows_of(int64_t s, std::span<const int32_t> tokens, StepResult result, int64_t width);
  Tensor forward(const StepShape& shape, const Tensor& tokens, const StepContext& step) const;
  void run(const StepShape& shape, const StepInput& in, int64_t filled);
  std::span<const float> logits() const { return logits_.data<float>(); }

  ModelConfig config_;
  ModelOptions options_;
  int64_t weight_bytes_ = 0, capacity_ = 0;
  PackedMatrix embeddings_;
  Tensor position_embeddings_;
  std::optional<Norm> embedding_norm_, output_norm_;
  Projection output_;
  RopeTables ropes_;
  std::vector<Layer> layers_;
  std::vector<std::vector<int32_t>> sequences_;
  std::map<StepShape, Jit<StepFunction>> steps_;
  Tensor logits_;  ///< of the last step
  mutable std::recursive_mutex mutex_;
};

/// Returns the factors a file brings for the frequencies of pairs; empty: none.
std::vector<float> frequency_factors(const Weights& w, int64_t max_context) {
  const ModelConfig& c = w.config();
  const char* name = "rope_freqs.weight";
  if (c.rope.scaling == RopeScaling::kLongRope)
    name = max_context > c.rope.original_context ? "rope_factors_long.weight" : "rope_factors_short.weight";
  if (!w.has(name)) return {};
  return w.vector(name, c.rope.dims / 2).to_vector<float>();
}

Decoder::Decoder(const io::GgufFile& file, ModelConfig config, const ModelOptions& o)
    : config_(std::move(config)), options_(o) {
  const ModelConfig& c = config_;
  if (options_.max_context == 0) options_.max_context = std::min(c.trained_context, kDefaultContext);
  TG_CHECK(ValueError, options_.max_context > 0 && options_.max_context <= kMaxTrainedContext, "[llm] got max_context ",
           o.max_context, ", expected 1 to ", kMaxTrainedContext);
  TG_CHECK(ValueError, o.max_sequences > 0 && o.max_sequences <= kMaxSequences, "[llm] got max_sequences ",
           o.max_sequences, ", expected 1 to ", kMaxSequences);
  TG_CHECK(ValueError, o.cache_dtype == dtypes::float16 || o.cache_dtype == dtypes::float32, "[llm] got cache_dtype ",
           o.cache_dtype, ", expected float16 or float32");
  TG_CHECK(ValueError, o.prefill_chunk >= 0 && o.prefill_chunk <= options_.max_context, "[llm] got prefill_chunk ",
           o.prefill_chunk, ", expected 0 to ", options_.max_context);
  // At least two blocks, so that their number is a variable.
  const int64_t blocks = std::max<int64_t>(2, (options_.max_context + kCacheBlock - 1) / kCacheBlock);
  capacity_ = blocks * kCacheBlock;
  sequences_.resize(static_cast<size_t>(o.max_sequences));

  const Weights w(file, c, o.device);
  for (const io::GgufTensor& t : file.tensors()) weight_bytes_ += static_cast<int64_t>(t.bytes);
  embeddings_ = w.matrix("token_embd.weight", {c.vocab_size, c.dim});
  if (c.learned_positions) {
    const std::vector<int64_t> size = w.shape("position_embd.weight");
    TG_CHECK(FormatError, !size.empty() && size[0] >= c.trained_context, "[gguf] ", file.metadata().file(),
             ": position_embd.weight has fewer rows than the context of ", c.trained_context);
    TG_CHECK(ValueError, options_.max_context <= size[0], "[llm] got max_context ", options_.max_context,
             ", expected at most the ", size[0], " positions the model knows");
    position_embeddings_ = w.values("position_embd.weight", {size[0], c.dim});
  }
  embedding_norm_ = w.find_norm("token_embd_norm", c.dim);
  output_norm_ = w.has("output_norm.weight") ? w.norm("output_norm", c.dim) : Norm{c.norm, c.norm_eps, {}, {}};
  output_ = w.has("output.weight") ? w.projection("output", c.vocab_size, c.dim) : Projection{embeddings_, Tensor()};
  if (c.rope.pairs != RopePairs::kNone) {
    ropes_.all.emplace(rope_frequencies(c.rope, frequency_factors(w, options_.max_context)), c.rope.pairs, capacity_,
                       o.device);
    if (std::any_of(c.layers.begin(), c.layers.end(), [](const LayerConfig& l) { return l.local_rope; }))
      ropes_.local.emplace(rope_frequencies(c.rope_local), c.rope_local.pairs, capacity_, o.device);
  }
  const CacheOptions cache{o.max_sequences, blocks, o.cache_dtype};
  for (int64_t i = 0; i < c.blocks(); i++) layers_.emplace_back(w, i, ropes_, cache);
}

int64_t Decoder::cache_bytes() const {
  int64_t sum = 0;
  for (const Layer& l : layers_) sum += l.mixer().cache_bytes();
  return sum;
}

const std::vector<int32_t>& Decoder::sequence(int64_t s) const {
  TG_CHECK(ValueError, s >= 0 && s < max_sequences(), "[llm] got sequence ", s, ", expected 0 to ",
           max_sequences() - 1);
  return sequences_[static_cast<size_t>(s)];
}

int64_t Decoder::rewindable(int64_t s, int64_t tokens) const {
  const auto held = static_cast<int64_t>(sequence(s).size());
  const int64_t n = std::clamp<int64_t>(tokens, 0, held);
  return config_.has_recurrent_layer() && n != held ? 0 : n;
}

void Decoder::rewind(int64_t s, int64_t tokens) {
  std::lock_guard lock(mutex_);
  TG_CHECK(ValueError, rewindable(s, tokens) == tokens, "[rewind] got ", tokens, " tokens, expected ",
           config_.has_recurrent_layer() ? "0 or " : "0 to ", position(s));
  sequences_[static_cast<size_t>(s)].resize(static_cast<size_t>(tokens));
}

void Decoder::copy(int64_t from, int64_t to, int64_t tokens) {
  std::lock_guard lock(mutex_);
  sequence(to);
  TG_CHECK(ValueError, rewindable(from, tokens) == tokens, "[copy] got ", tokens, " tokens, expected ",
           config_.has_recurrent_layer() ? "0 or " : "0 to ", position(from));
  if (from == to) return rewind(to, tokens);
  if (tokens > 0)
    for (const Layer& l : layers_) l.mixer().copy(from, to, tokens);
  const std::vector<int32_t>& held = sequences_[static_cast<size_t>(from)];
  sequences_[static_cast<size_t>(to)].assign(held.begin(), held.begin() + tokens);
}

void Decoder::check_tokens(int64_t s, std::span<const int32_t> tokens, const char* op) const {
  const auto held = static_cast<int64_t>(sequence(s).size()), more = static_cast<int64_t>(tokens.size());
  TG_CHECK(ValueError, more > 0, "[", op, "] got no tokens, expected 1 or more");
  TG_CHECK(ValueError, more <= max_context() - held, "[", op, "] got ", more, " tokens for sequence ", s,
           ", which holds ", held, " of at most ", max_context());
  for (const int32_t t : tokens)
    TG_CHECK(ValueError, t >= 0 && t < vocab_size(), "[", op, "] got token ", t, ", expected 0 to ", vocab_size() - 1);
}

int64_t Decoder::chunk_for(int64_t left) const {
  if (options_.prefill_chunk != 0) return options_.prefill_chunk;
  if (left == 1) return 1;
  return std::min(left <= kShortChunk ? kShortChunk : kLongChunk, capacity_);
}

/// Computes tokens chunk by chunk; `seen` is told how many rows of each chunk are tokens, when logits() has what
/// `last_result` asked for: kLast in the last one, others in every chunk.
void Decoder::append(int64_t s, std::span<const int32_t> tokens, StepResult last_result,
                     const std::function<void(int64_t)>& seen) {
  std::vector<int32_t>& held = sequences_[static_cast<size_t>(s)];
  while (!tokens.empty()) {
    const int64_t time = chunk_for(static_cast<int64_t>(tokens.size()));
    const auto count = std::min<size_t>(tokens.size(), static_cast<size_t>(time));
    const bool wanted = last_result != StepResult::kLast || count == tokens.size();
    StepInput in;
    in.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    for (size_t i = 0; i < count; i++) in.positions.push_back(static_cast<int32_t>(held.size() + i));
    in.tokens.resize(static_cast<size_t>(time), 0);
    in.positions.resize(static_cast<size_t>(time), static_cast<int32_t>(capacity_));
    in.sequences = {static_cast<int32_t>(s)};
    in.last = {static_cast<int32_t>(count - 1)};
    run({1, time, wanted ? last_result : StepResult::kNothing}, in, static_cast<int64_t>(held.size() + count));
    held.insert(held.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    tokens = tokens.subspan(count);
    if (wanted && seen) seen(static_cast<int64_t>(count));
  }
}

std::span<const float> Decoder::prefill(int64_t s, std::span<const int32_t> tokens) {
  std::lock_guard lock(mutex_);
  check_tokens(s, tokens, "prefill");
  append(s, tokens, StepResult::kLast, {});
  return logits();
}

/// Returns what a step gives for each token, (tokens, width).
std::vector<float> Decoder::rows_of(int64_t s, std::span<const int32_t> tokens, StepResult result, int64_t width) {
  std::vector<float> out;
  out.reserve(tokens.size() * static_cast<size_t>(width));
  append(s, tokens, result, [&](int64_t rows) {
    const std::span<const float> all = logits();
    out.insert(out.end(), all.begin(), all.begin() + rows * width);
  });
  return out;
}

std::vector<float> Decoder::prefill_all(int64_t s, std::span<const int32_t> tokens) {
  std::lock_guard lock(mutex_);
  check_tokens(s, tokens, "prefill_all");
  return rows_of(s, tokens, StepResult::kAll, vocab_size());
}

std::vector<float> Decoder::prefill_hidden(int64_t s, std::span<const int32_t> tokens) {
  std::lock_guard lock(mutex_);
  check_tokens(s, tokens, "prefill_hidden");
  return rows_of(s, tokens, StepResult::kHidden, config_.dim);
}

std::span<const float> Decoder::decode(std::span<const NextToken> next) {
  std::lock_guard lock(mutex_);
  TG_CHECK(ValueError, !next.empty() && static_cast<int64_t>(next.size()) <= max_sequences(), "[decode] got ",
           next.size(), " sequences, expected 1 to ", max_sequences());
  std::vector<bool> used(sequences_.size());
  for (const NextToken& n : next) {
    check_tokens(n.sequence, {&n.token, 1}, "decode");
    TG_CHECK(ValueError, !used[static_cast<size_t>(n.sequence)], "[decode] got sequence ", n.sequence, " twice");
    used[static_cast<size_t>(n.sequence)] = true;
  }
  int64_t batch = 1;
  while (batch < static_cast<int64_t>(next.size())) batch *= 2;
  batch = std::min(batch, max_sequences());
  StepInput in;
  int64_t filled = 1;
  for (const NextToken& n : next) {
    const int64_t at = position(n.sequence);
    in.tokens.push_back(n.token);
    in.positions.push_back(static_cast<int32_t>(at));
    in.sequences.push_back(static_cast<int32_t>(n.sequence));
    filled = std::max(filled, at + 1);
  }
  // Rows without a sequence: a slot that no row uses, so that what recurrent layers write there changes nothing.
  for (int64_t s = 0; static_cast<int64_t>(in.tokens.size()) < batch; s++) {
    if (used[static_cast<size_t>(s)]) continue;
    in.tokens.push_back(0);
    in.positions.push_back(static_cast<int32_t>(capacity_));
    in.sequences.push_back(static_cast<int32_t>(s));
  }
  in.last.assign(static_cast<size_t>(batch), 0);
  run({batch, 1, StepResult::kLast}, in, filled);
  for (const NextToken& n : next) sequences_[static_cast<size_t>(n.sequence)].push_back(n.token);
  return logits().first(next.size() * static_cast<size_t>(vocab_size()));
}

Tensor Decoder::forward(const StepShape& shape, const Tensor& tokens, const StepContext& step) const {
  const ModelConfig& c = config_;
  Tensor x = embeddings_.rows(tokens);
  if (c.embedding_scale != 1) x = x * c.embedding_scale;
  if (position_embeddings_.defined()) x = x + position_embeddings_[step.rows.positions];
  if (embedding_norm_) x = (*embedding_norm_)(x);
  x = x.contiguous();
  for (const Layer& layer : layers_) x = layer(x, step);
  if (shape.result == StepResult::kNothing) return x;
  if (shape.result == StepResult::kLast && shape.time > 1)
    x = x(Tensor::arange(shape.batch, {.dtype = dtypes::int32}), step.last);
  const Tensor hidden = (*output_norm_)(x.reshape(-1, c.dim));
  if (shape.result == StepResult::kHidden) return hidden.cast(dtypes::float32);
  Tensor y = output_(hidden);
  if (c.logit_scale != 1) y = y * c.logit_scale;
  return c.logit_softcap == 0 ? y : (y / c.logit_softcap).tanh() * c.logit_softcap;
}

/// Computes one step, captured once for each shape. `filled`: how many positions of a sequence hold tokens afterwards,
/// at most.
void Decoder::run(const StepShape& shape, const StepInput& in, int64_t filled) {
  logits_ = Tensor();
  auto at = steps_.find(shape);
  if (at == steps_.end()) {
    const StepFunction body = [this, shape](const Tensor& tokens, const Tensor& positions, const Tensor& sequences,
                                            const Tensor& last, const BoundVariable& blocks) {
      StepContext step{{positions, sequences, blocks}, {}, {}, positions < capacity_, last};
      if (ropes_.all) step.rope = ropes_.all->rows(positions);
      if (ropes_.local) step.rope_local = ropes_.local->rows(positions);
      return forward(shape, tokens, step).contiguous().realize();
    };
    at = steps_.emplace(shape, jit(body, {.name = "language model step"})).first;
  }
  const auto tensor = [&](const std::vector<int32_t>& v, const Shape& s) {
    return Tensor::from(v, s, {.device = options_.device});
  };
  const Shape rows{shape.batch, shape.time}, each{shape.batch};
  const BoundVariable blocks =
      Variable("blocks", 1, capacity_ / kCacheBlock).bind((filled + kCacheBlock - 1) / kCacheBlock);
  logits_ = at->second(tensor(in.tokens, rows), tensor(in.positions, rows), tensor(in.sequences, each),
                       tensor(in.last, each), blocks);
}

}  // namespace

std::shared_ptr<LanguageModel> LanguageModel::load(const io::GgufFile& file, const ModelOptions& o) {
  return std::make_shared<Decoder>(file, read_model_config(file), o);
}

std::shared_ptr<LanguageModel> LanguageModel::load(const std::filesystem::path& file, const ModelOptions& o) {
  return load(io::GgufFile::open(file), o);
}

}  // namespace tg::llm
