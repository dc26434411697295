/// \file The decoder: steps of compiled shapes, and the book of sequences.
#include "tinygrad/llm/language_model.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/system_memory.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/decoder_network.h"
#include "tinygrad/llm/load_led.h"
#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::llm {
namespace {

constexpr int64_t kDefaultContext = 4096;  // of models that were trained for more
constexpr int64_t kMaxSequences = 1024;
constexpr int64_t kChunks[] = {8, 32, 256};  // tokens of a prompt computed at once

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

/// What changes from step to step: tensors of a StepInput, the first blocks that windows reach, and how many blocks the
/// sequences fill and windows reach.
struct StepArguments {
  Tensor tokens, positions, sequences, last, first;
  BoundVariable blocks, window_blocks;
  template <class F> void visit_tensors(F&& f) {
    for (Tensor* t : {&tokens, &positions, &sequences, &last, &first}) f(*t);
    f(blocks);
    f(window_blocks);
  }
};
using StepFunction = std::function<Tensor(const StepArguments&)>;

/// Refuses a context whose caches do not fit into memory: the system would end the process when they are filled. Pages
/// of weights should stay as well, where they fit at all; else they come from the file again and again.
void check_memory(const SequenceMemory& needed, int64_t blocks, int64_t sequences, int64_t weights) {
  const int64_t available = system_memory().available;
  if (available == 0) return;
  const int64_t beside = weights < available ? weights : 0;
  const int64_t most = (available - beside - needed.fixed) / std::max<int64_t>(needed.per_block, 1);
  if (blocks <= most) return;
  const auto shown = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  throw OutOfMemoryError(str("[llm] a context of ", blocks * kCacheBlock, " tokens",
                             sequences > 1 ? str(" for each of ", sequences, " sequences") : std::string(), " takes ",
                             shown(needed.of(blocks)), " beside ", shown(weights), " of weights, and ",
                             shown(available), " of memory are available: a context of at most ",
                             std::max<int64_t>(most, 0) * kCacheBlock, " tokens fits"));
}

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
  Tensor forward(const StepShape& shape, const StepArguments& a) const;
  StepArguments arguments(const StepShape& shape, const StepInput& in) const;
  void run(const StepShape& shape, const StepInput& in);
  std::span<const float> logits() const { return logits_.data<float>(); }

  ModelConfig config_;
  ModelOptions options_;
  int64_t weight_bytes_ = 0, capacity_ = 0;
  int64_t window_ = 0;  ///< of layers that have one smaller than the context; 0: there are none
  std::optional<DecoderNetwork> network_;
  std::vector<std::vector<int32_t>> sequences_;
  std::map<StepShape, Jit<StepFunction>> steps_;
  std::optional<StepShape> last_chunk_;  ///< the last step of several tokens
  Tensor logits_;                        ///< of the last step
  mutable std::recursive_mutex mutex_;
};

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

  for (const LayerConfig& l : c.layers)
    if (l.window < capacity_) window_ = std::max(window_, l.window);
  for (const io::GgufTensor& t : file.tensors()) weight_bytes_ += static_cast<int64_t>(t.bytes);
  const ModelShare share = o.divided ? ModelShare::of_world() : ModelShare();
  const CacheOptions cache{o.max_sequences, blocks, o.cache_dtype};
  if (Device::get(o.device).host_visible())
    check_memory(sequence_memory(c, share, cache), blocks, o.max_sequences, weight_bytes_ / share.count());
  network_.emplace(Weights(file, c, o.device, nullptr, share), options_.max_context, cache);
}

int64_t Decoder::cache_bytes() const {
  int64_t sum = 0;
  for (const DecoderLayer& l : network_->layers()) sum += l.mixer().cache_bytes();
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
    for (const DecoderLayer& l : network_->layers()) l.mixer().copy(from, to, tokens);
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
  const auto* chunk = std::find_if(std::begin(kChunks), std::end(kChunks) - 1, [&](int64_t c) { return left <= c; });
  return std::min(*chunk, capacity_);
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
    run({1, time, wanted ? last_result : StepResult::kNothing}, in);
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
  for (const NextToken& n : next) {
    in.tokens.push_back(n.token);
    in.positions.push_back(static_cast<int32_t>(position(n.sequence)));
    in.sequences.push_back(static_cast<int32_t>(n.sequence));
  }
  // Rows without a sequence: a slot that no row uses, so that what recurrent layers write there changes nothing.
  for (int64_t s = 0; static_cast<int64_t>(in.tokens.size()) < batch; s++) {
    if (used[static_cast<size_t>(s)]) continue;
    in.tokens.push_back(0);
    in.positions.push_back(static_cast<int32_t>(capacity_));
    in.sequences.push_back(static_cast<int32_t>(s));
  }
  in.last.assign(static_cast<size_t>(batch), 0);
  run({batch, 1, StepResult::kLast}, in);
  for (const NextToken& n : next) sequences_[static_cast<size_t>(n.sequence)].push_back(n.token);
  return logits().first(next.size() * static_cast<size_t>(vocab_size()));
}

/// Layers are computed one by one: all of one kind find the schedule of the first, and its memory.
Tensor Decoder::forward(const StepShape& shape, const StepArguments& a) const {
  const StepRows rows{a.positions, a.sequences, {}, a.blocks};
  const StepRows windowed = window_ == 0 ? rows : StepRows{a.positions, a.sequences, a.first, a.window_blocks};
  StepContext step = network_->context(rows, windowed, a.last);
  for (Tensor* t : {&step.rope.cos, &step.rope.sin, &step.rope_local.cos, &step.rope_local.sin})
    if (t->defined()) *t = t->contiguous().realize();
  Tensor x = network_->embed(a.tokens, step).realize();
  for (const DecoderLayer& layer : network_->layers()) x = layer(x, step).realize();
  if (shape.result == StepResult::kNothing) return x;
  if (shape.result == StepResult::kLast && shape.time > 1)
    x = x(Tensor::arange(shape.batch, {.dtype = dtypes::int32}), step.last);
  x = x.flatten(0, -2);
  const Tensor y = shape.result == StepResult::kHidden ? network_->hidden(x) : network_->logits(x);
  return y.contiguous().realize();
}

StepArguments Decoder::arguments(const StepShape& shape, const StepInput& in) const {
  int64_t filled = 1, reached = 1;  // positions; blocks of a window
  std::vector<int32_t> first;       // by row: the first block that a window reaches
  for (int64_t b = 0; b < shape.batch; b++) {
    const auto row = std::span(in.positions).subspan(static_cast<size_t>(b * shape.time));
    int64_t last = -1;
    for (const int32_t p : row.first(static_cast<size_t>(shape.time)))
      if (p < capacity_) last = std::max<int64_t>(last, p);
    filled = std::max(filled, last + 1);
    const int64_t from = last < 0 ? 0 : std::max<int64_t>(0, row[0] - window_ + 1) / kCacheBlock;
    first.push_back(static_cast<int32_t>(from));
    reached = std::max(reached, std::max<int64_t>(last, 0) / kCacheBlock - from + 1);
  }
  const auto tensor = [&](const std::vector<int32_t>& v, const Shape& s) {
    return Tensor::from(v, s, {.device = options_.device});
  };
  const Shape rows{shape.batch, shape.time}, each{shape.batch};
  const int64_t all = capacity_ / kCacheBlock;
  // In how many blocks `time` tokens with their windows can lie, wherever the first of them is.
  const int64_t most = std::clamp<int64_t>((window_ + shape.time + kCacheBlock - 3) / kCacheBlock + 1, 2, all);
  return {tensor(in.tokens, rows),
          tensor(in.positions, rows),
          tensor(in.sequences, each),
          tensor(in.last, each),
          tensor(first, each),
          Variable("blocks", 1, all).bind((filled + kCacheBlock - 1) / kCacheBlock),
          Variable("window_blocks", 1, window_ == 0 ? all : most).bind(window_ == 0 ? 1 : reached)};
}

/// Computes one step, captured once for each shape. Steps of several tokens use the same memory one after another.
void Decoder::run(const StepShape& shape, const StepInput& in) {
  logits_ = Tensor();
  if (shape.time > 1 && last_chunk_ && *last_chunk_ != shape) steps_.at(*last_chunk_).core().free_intermediates();
  if (shape.time > 1) last_chunk_ = shape;
  auto at = steps_.find(shape);
  if (at == steps_.end()) {
    const StepFunction body = [this, shape](const StepArguments& a) { return forward(shape, a); };
    at = steps_.emplace(shape, jit(body, {.name = "language model step"})).first;
  }
  const bool captured = at->second.core().captured();
  logits_ = at->second(arguments(shape, in));
  if (!captured && at->second.core().captured()) free_memory_caches();  // of runs that were not planned as a whole
}

}  // namespace

std::string LanguageModel::context_warning() const {
  const bool stretched = config().rope.scaling != RopeScaling::kNone;
  if (max_context() <= config().trained_context || stretched) return {};
  return str("a context of ", max_context(), " tokens is longer than the ", config().trained_context,
             " that the model was trained for: replies may lose their sense there");
}

std::shared_ptr<LanguageModel> LanguageModel::load(const io::GgufFile& file, const ModelOptions& o) {
  if (o.leader) return load_led(file, o);
  return std::make_shared<Decoder>(file, read_model_config(file), o);
}

std::shared_ptr<LanguageModel> LanguageModel::load(const std::filesystem::path& file, const ModelOptions& o) {
  return load(io::GgufFile::open(file), o);
}

}  // namespace tg::llm
