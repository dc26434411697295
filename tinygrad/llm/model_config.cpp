/// \file Reading hyperparameters: common keys by one list, what an architecture implies by a row of a table.
#include "tinygrad/llm/model_config.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"

namespace tg::llm {
namespace {

using Metadata = io::GgufMetadata;

/// Which layers see a window only, if the file names its size.
enum class WindowPattern : uint8_t { kNone, kAll, kAlternate, kFiveOfSix, kThreeOfFour };

/// What files of an architecture do not say.
struct Architecture {
  std::string_view name;
  RopePairs rope = RopePairs::kAdjacent;
  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSilu;
  WindowPattern windows = WindowPattern::kNone;
  bool scaled_embeddings = false;  ///< by sqrt(dim)
  bool normalize_experts = false;
  bool parallel_blocks = false;
  bool post_norm_is_ffn_norm = false;
  bool divides_logits = false;  ///< logit_scale is a divisor
  bool query_gate = false;
  double attention_softcap = 0, logit_softcap = 0;
  double local_rope_base = 0;       ///< of layers with a window; 0: that of the others
  int64_t rope_free_every = 0;      ///< every n-th layer has no rotary positions
  int64_t narrow_scale_blocks = 0;  ///< with so many blocks scores are scaled by sqrt(heads / dim)
};

constexpr RopePairs kHalves = RopePairs::kHalves;
constexpr NormKind kLayer = NormKind::kLayer;
constexpr Activation kGelu = Activation::kGelu;

constexpr Architecture kArchitectures[] = {
    {.name = "command-r", .norm = kLayer, .parallel_blocks = true},
    {.name = "deepseek"},
    {.name = "deepseek2"},
    {.name = "exaone", .rope = kHalves},
    {.name = "gemma", .rope = kHalves, .activation = kGelu, .scaled_embeddings = true},
    {.name = "gemma2",
     .rope = kHalves,
     .activation = kGelu,
     .windows = WindowPattern::kAlternate,
     .scaled_embeddings = true,
     .attention_softcap = 50,
     .logit_softcap = 30,
     .narrow_scale_blocks = 46},
    {.name = "gemma3",
     .rope = kHalves,
     .activation = kGelu,
     .windows = WindowPattern::kFiveOfSix,
     .scaled_embeddings = true,
     .local_rope_base = 10000,
     .narrow_scale_blocks = 62},
    {.name = "glm4moe", .rope = kHalves, .normalize_experts = true, .post_norm_is_ffn_norm = true},
    {.name = "gpt2", .rope = RopePairs::kNone, .norm = kLayer, .activation = kGelu},
    {.name = "gptneox", .rope = kHalves, .norm = kLayer, .activation = kGelu},
    {.name = "granite", .divides_logits = true},
    {.name = "internlm2"},
    {.name = "llama", .windows = WindowPattern::kAll, .normalize_experts = true},
    {.name = "mistral", .windows = WindowPattern::kAll, .normalize_experts = true},
    {.name = "olmo", .norm = kLayer},
    {.name = "olmo2", .rope = kHalves, .windows = WindowPattern::kThreeOfFour},
    {.name = "olmoe", .rope = kHalves},
    {.name = "phi2", .rope = kHalves, .norm = kLayer, .activation = kGelu, .parallel_blocks = true},
    {.name = "phi3", .rope = kHalves, .windows = WindowPattern::kAll},
    {.name = "qwen2", .rope = kHalves},
    {.name = "qwen2moe", .rope = kHalves},
    {.name = "qwen3", .rope = kHalves},
    {.name = "qwen35", .rope = kHalves, .normalize_experts = true, .post_norm_is_ffn_norm = true, .query_gate = true},
    {.name = "qwen35moe",
     .rope = kHalves,
     .normalize_experts = true,
     .post_norm_is_ffn_norm = true,
     .query_gate = true},
    {.name = "qwen3moe", .rope = kHalves, .normalize_experts = true},
    {.name = "qwen3next",
     .rope = kHalves,
     .normalize_experts = true,
     .post_norm_is_ffn_norm = true,
     .query_gate = true},
    {.name = "smollm3", .rope_free_every = 4},
    {.name = "stablelm", .rope = kHalves, .norm = kLayer},
    {.name = "starcoder2", .rope = kHalves, .norm = kLayer, .activation = kGelu},
};

/// Metadata of one architecture: keys without their prefix.
class Keys {
 public:
  Keys(const Metadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(str(architecture, ".")) {}
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return metadata_.contains(name(key)); }
  int64_t integer(std::string_view key, int64_t least, int64_t most) const {
    return metadata_.integer(name(key), least, most);
  }
  int64_t integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most) const {
    return metadata_.integer_or(name(key), fallback, least, most);
  }
  bool flag_or(std::string_view key, bool fallback) const { return metadata_.flag_or(name(key), fallback); }
  std::string_view string_or(std::string_view key, std::string_view fallback) const {
    return metadata_.string_or(name(key), fallback);
  }
  /// A number in [least, most].
  double real_or(std::string_view key, double fallback, double least, double most) const {
    const double v = metadata_.real_or(name(key), fallback);
    check(v >= least && v <= most, key, v, least, most);
    return v;
  }
  /// A number for each layer: the file gives one for all, or a list.
  std::vector<int64_t> per_layer(std::string_view key, int64_t layers, int64_t least, int64_t most) const {
    std::vector<int64_t> v = metadata_.integers(name(key), least, most);
    if (v.size() == 1) v.resize(static_cast<size_t>(layers), v[0]);
    if (static_cast<int64_t>(v.size()) < layers)
      fail(key, str("got ", v.size(), " values, expected one for each of ", layers, " layers"));
    return v;
  }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    const Metadata::Entry* e = metadata_.find(name(key));
    throw FormatError(str("[gguf] ", metadata_.file(), ": ",
                          e ? str("byte ", e->offset, " (", name(key), ")") : name(key), ": ", what));
  }

 private:
  void check(bool ok, std::string_view key, double v, double least, double most) const {
    if (!ok) fail(key, str("got ", v, ", expected ", least, " to ", most));
  }
  const Metadata& metadata_;
  std::string prefix_;
};

constexpr double kMostScale = 1e6;
constexpr double kLeastBase = 1.001, kMostBase = 1e12;

/// Reads how positions beyond those of training are reached.
void read_rope_scaling(const Keys& k, RopeConfig& rope) {
  const std::string_view kind = k.string_or("rope.scaling.type", "");
  rope.factor = k.real_or("rope.scaling.factor", k.real_or("rope.scale_linear", 1, 0, kMostScale), 0, kMostScale);
  if (rope.factor == 0) rope.factor = 1;
  rope.original_context = k.integer_or("rope.scaling.original_context_length", 0, 0, kMaxTrainedContext);
  rope.attention_factor = k.real_or("rope.scaling.attn_factor", 1, 0, kMostScale);
  if (kind == "yarn") rope.scaling = RopeScaling::kYarn;
  else if (kind == "longrope") rope.scaling = RopeScaling::kLongRope;
  else if (kind == "linear" || (kind.empty() && rope.factor != 1)) rope.scaling = RopeScaling::kLinear;
  else if (!kind.empty() && kind != "none")
    k.fail("rope.scaling.type", str("got '", kind.substr(0, 64), "', expected none, linear, yarn or longrope"));
  rope.yarn_extrapolation = k.real_or("rope.scaling.yarn_ext_factor", 1, 0, 1);
  rope.yarn_beta_fast = k.real_or("rope.scaling.yarn_beta_fast", 32, 1e-3, kMostScale);
  rope.yarn_beta_slow = k.real_or("rope.scaling.yarn_beta_slow", 1, 1e-3, kMostScale);
  rope.yarn_log_multiplier = k.real_or("rope.scaling.yarn_log_multiplier", 0, 0, kMostScale);
}

void read_rope(const Keys& k, const Architecture& a, ModelConfig& c) {
  RopeConfig& rope = c.rope;
  rope.pairs = a.rope;
  if (a.rope == RopePairs::kNone) return;
  rope.dims = k.integer_or("rope.dimension_count", c.head_dim, 1, kMaxDim);
  if (rope.dims % 2 != 0 || rope.dims > c.head_dim)
    k.fail("rope.dimension_count", str("got ", rope.dims, ", expected an even number up to ", c.head_dim));
  rope.base = k.real_or("rope.freq_base", 10000, kLeastBase, kMostBase);
  read_rope_scaling(k, rope);
  if (rope.original_context == 0) rope.original_context = c.trained_context;
  c.rope_local = rope;
  const double local = k.real_or("rope.freq_base_swa", a.local_rope_base, 0, kMostBase);
  if (local != 0) {
    if (local < kLeastBase) k.fail("rope.freq_base_swa", str("got ", local, ", expected 0 or at least ", kLeastBase));
    c.rope_local.base = local;
    c.rope_local.scaling = RopeScaling::kNone;
    c.rope_local.factor = 1;
  }
}

void read_heads(const Keys& k, ModelConfig& c) {
  const auto layers = c.blocks();
  const std::vector<int64_t> heads = k.per_layer("attention.head_count", layers, 0, kMaxHeads);
  const std::vector<int64_t> kv =
      k.has("attention.head_count_kv") ? k.per_layer("attention.head_count_kv", layers, 0, kMaxHeads) : heads;
  int64_t most = 0;
  for (size_t i = 0; i < c.layers.size(); i++) {
    c.layers[i].heads = heads[i];
    c.layers[i].kv_heads = kv[i];
    most = std::max(most, heads[i]);
    const bool fits = heads[i] > 0 && kv[i] > 0 && heads[i] % kv[i] == 0;
    if (!fits && kv[i] != 0)
      k.fail("attention.head_count_kv",
             str("got ", kv[i], " in layer ", i, ", expected a divisor of ", heads[i], " heads"));
  }
  if (most == 0) k.fail("attention.head_count", "got 0 in every layer");
  if (c.dim < most && !(k.has("attention.key_length") && k.has("attention.value_length")))
    k.fail("attention.head_count", str("got ", most, ", expected at most the ", c.dim, " values of an embedding"));
  c.head_dim = k.integer_or("attention.key_length", c.dim / most, 1, kMaxDim);
  c.value_dim = k.integer_or("attention.value_length", c.dim / most, 1, kMaxDim);
  c.latent.kv_rank = k.integer_or("attention.kv_lora_rank", 0, 0, kMaxDim);
  if (c.latent.kv_rank == 0) return;
  c.latent.q_rank = k.integer_or("attention.q_lora_rank", 0, 0, kMaxDim);
  c.head_dim = k.integer_or("attention.key_length_mla", c.head_dim, 1, kMaxDim);
  c.value_dim = k.integer_or("attention.value_length_mla", c.value_dim, 1, kMaxDim);
}

/// Says which layers have a window, of which size.
void read_windows(const Keys& k, const Architecture& a, ModelConfig& c) {
  const int64_t size = k.integer_or("attention.sliding_window", 0, 0, kMaxTrainedContext);
  if (size == 0 || a.windows == WindowPattern::kNone) return;
  std::vector<int64_t> stated;
  if (k.has("attention.sliding_window_pattern"))
    stated = k.per_layer("attention.sliding_window_pattern", 1, 0, kMaxBlocks);
  const bool by_layer = static_cast<int64_t>(stated.size()) >= c.blocks() && c.blocks() > 1;
  const int64_t period = a.windows == WindowPattern::kAlternate     ? 2
                         : a.windows == WindowPattern::kFiveOfSix   ? 6
                         : a.windows == WindowPattern::kThreeOfFour ? 4
                                                                    : 0;
  const int64_t every = !by_layer && !stated.empty() && stated[0] > 0 ? stated[0] : period;
  for (size_t i = 0; i < c.layers.size(); i++) {
    const bool windowed = by_layer ? stated[i] != 0 : every == 0 || static_cast<int64_t>(i + 1) % every != 0;
    if (!windowed) continue;
    c.layers[i].window = size;
    c.layers[i].local_rope = a.local_rope_base != 0 || k.has("rope.freq_base_swa");
  }
}

void read_experts(const Keys& k, const Architecture& a, ModelConfig& c) {
  ExpertConfig& e = c.experts;
  e.count = k.integer_or("expert_count", 0, 0, kMaxExperts);
  const int64_t dense = k.integer_or("leading_dense_block_count", 0, 0, kMaxBlocks);
  const int64_t step = std::max<int64_t>(1, k.integer_or("interleave_moe_layer_step", 1, 0, kMaxBlocks));
  if (e.count == 0) return;
  e.used = k.integer("expert_used_count", 1, e.count);
  e.hidden_dim = k.integer_or("expert_feed_forward_length", 0, 0, kMaxDim);
  e.normalize = k.flag_or("expert_weights_norm", a.normalize_experts);
  e.scale = k.real_or("expert_weights_scale", 1, -kMostScale, kMostScale);
  if (e.scale == 0) e.scale = 1;
  const int64_t gating = k.integer_or("expert_gating_func", 1, 0, 4);
  e.gating = gating == 0 ? ExpertGating::kSoftmax : static_cast<ExpertGating>(gating);
  e.groups = std::max<int64_t>(1, k.integer_or("expert_group_count", 1, 0, e.count));
  e.groups_used = std::max<int64_t>(1, k.integer_or("expert_group_used_count", e.groups, 0, e.groups));
  if (e.count % e.groups != 0)
    k.fail("expert_group_count", str("got ", e.groups, ", expected a divisor of ", e.count, " experts"));
  if (e.groups_used * (e.count / e.groups) < e.used)
    k.fail("expert_group_used_count",
           str("got ", e.groups_used, ": these groups have fewer than ", e.used, " experts"));
  for (size_t i = 0; i < c.layers.size(); i++) {
    const auto n = static_cast<int64_t>(i);
    c.layers[i].experts = n >= dense && (n + 1) % step == 0;
  }
}

void read_recurrent(const Keys& k, ModelConfig& c) {
  if (!k.has("ssm.conv_kernel")) return;
  RecurrentConfig& r = c.recurrent;
  r.conv_kernel = k.integer("ssm.conv_kernel", 1, kMaxConvKernel);
  r.state_size = k.integer("ssm.state_size", 1, kMaxDim);
  r.groups = k.integer("ssm.group_count", 1, kMaxHeads);
  r.heads = k.integer("ssm.time_step_rank", 1, kMaxHeads);
  r.inner_dim = k.integer("ssm.inner_size", 1, kMaxDim);
  if (r.inner_dim % r.heads != 0)
    k.fail("ssm.inner_size", str("got ", r.inner_dim, ", expected a multiple of ", r.heads, " heads"));
  if (r.heads % r.groups != 0)
    k.fail("ssm.time_step_rank", str("got ", r.heads, ", expected a multiple of ", r.groups, " groups"));
  const int64_t every = std::max<int64_t>(1, k.integer_or("full_attention_interval", 4, 0, kMaxBlocks));
  for (size_t i = 0; i < c.layers.size(); i++)
    c.layers[i].recurrent = c.layers[i].kv_heads == 0 || static_cast<int64_t>(i + 1) % every != 0;
}

void read_scales(const Keys& k, const Architecture& a, ModelConfig& c) {
  c.attention_scale = k.real_or("attention.scale", 0, 0, kMostScale);
  if (a.narrow_scale_blocks != 0 && a.narrow_scale_blocks == c.blocks())
    c.attention_scale = 1 / std::sqrt(static_cast<double>(c.dim) / static_cast<double>(c.layers[0].heads));
  c.attention_softcap = k.real_or("attn_logit_softcapping", a.attention_softcap, 0, kMostScale);
  c.logit_softcap = k.real_or("final_logit_softcapping", a.logit_softcap, 0, kMostScale);
  c.clamp_qkv = k.real_or("attention.clamp_kqv", 0, 0, kMostScale);
  c.embedding_scale = k.real_or("embedding_scale", a.scaled_embeddings ? std::sqrt(static_cast<double>(c.dim)) : 1,
                                -kMostScale, kMostScale);
  c.residual_scale = k.real_or("residual_scale", 1, -kMostScale, kMostScale);
  c.logit_scale = k.real_or("logit_scale", 1, -kMostScale, kMostScale);
  if (c.logit_scale == 0) c.logit_scale = 1;
  if (a.divides_logits) c.logit_scale = 1 / c.logit_scale;
}

/// Checks that every layer has something to mix tokens with and a network.
void check_layers(const Keys& k, const ModelConfig& c) {
  for (size_t i = 0; i < c.layers.size(); i++) {
    const LayerConfig& l = c.layers[i];
    if (!l.recurrent && l.kv_heads == 0) k.fail("attention.head_count_kv", str("got 0 in layer ", i));
    if (!l.recurrent && l.heads == 0) k.fail("attention.head_count", str("got 0 in layer ", i));
    if (!l.experts && l.hidden_dim == 0)
      k.fail("feed_forward_length", str(k.has("feed_forward_length") ? "got 0" : "missing", " for layer ", i));
  }
}

/// Compares sizes of heads with the tensors that hold them, so that no more than the file pays for is allocated for
/// caches and tables.
class TensorSizes {
 public:
  TensorSizes(std::string_view file, const ModelConfig& c, const FindGgufTensor& find)
      : file_(file), config_(c), find_(find) {}
  void check() const {
    for (size_t i = 0; i < config_.layers.size(); i++) {
      const LayerConfig& l = config_.layers[i];
      const std::string p = str("blk.", i, ".");
      if (l.recurrent) check_recurrent(p);
      else if (config_.latent.kv_rank != 0) check_latent(p, l);
      else check_attention(p, l);
    }
  }

 private:
  void check_attention(const std::string& p, const LayerConfig& l) const {
    const int64_t k = l.kv_heads * config_.head_dim, v = l.kv_heads * config_.value_dim, q = l.heads * config_.head_dim;
    if (find_(p + "attn_qkv.weight")) expect(p + "attn_qkv.weight", q + k + v, config_.dim);
    else {
      expect(p + "attn_k.weight", k, config_.dim);
      expect(p + "attn_v.weight", v, config_.dim);
    }
    expect(p + "attn_output.weight", config_.dim, l.heads * config_.value_dim);
  }
  void check_latent(const std::string& p, const LayerConfig& l) const {
    expect(p + "attn_kv_a_mqa.weight", config_.latent.kv_rank + config_.rope.dims, config_.dim);
    expect(p + "attn_output.weight", config_.dim, l.heads * config_.value_dim);
  }
  void check_recurrent(const std::string& p) const {
    const RecurrentConfig& r = config_.recurrent;
    expect(p + "ssm_out.weight", config_.dim, r.inner_dim);
    expect(p + "ssm_conv1d.weight", r.inner_dim + 2 * r.state_size * r.groups, r.conv_kernel);
  }
  void expect(const std::string& name, int64_t rows, int64_t columns) const {
    const io::GgufTensor* t = find_(name);
    TG_CHECK(FormatError, t, "[gguf] ", file_, ": tensor ", name, " is missing, expected (", rows, ", ", columns, ")");
    TG_CHECK(FormatError, t->shape.size() == 2 && t->shape[0] == rows && t->shape[1] == columns, "[gguf] ", file_,
             ": byte ", t->offset, " (", name, "): tensor ", name, " has shape ",
             Shape(std::span<const int64_t>(t->shape)), ", expected (", rows, ", ", columns, ")");
  }

  std::string_view file_;
  const ModelConfig& config_;
  const FindGgufTensor& find_;
};

const Architecture& architecture_of(const Metadata& m) {
  const std::string_view name = m.string("general.architecture");
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& a) { return a.name == name; });
  if (found != std::end(kArchitectures)) return *found;
  std::string known;
  for (const std::string_view a : known_architectures()) known += str(known.empty() ? "" : ", ", a);
  throw FormatError(str("[gguf] ", m.file(), ": byte ", m.find("general.architecture")->offset,
                        " (general.architecture): got '", name.substr(0, 64), "', expected one of ", known));
}

}  // namespace

bool ModelConfig::has_recurrent_layer() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& l) { return l.recurrent; });
}

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> out;
  for (const Architecture& a : kArchitectures) out.push_back(a.name);
  return out;
}

ModelConfig read_model_config(const Metadata& m, const FindGgufTensor& find) {
  const Architecture& a = architecture_of(m);
  const Keys k(m, a.name);
  ModelConfig c;
  c.architecture = a.name;
  c.name = m.string_or("general.name", "");
  c.dim = k.integer("embedding_length", 1, kMaxDim);
  c.trained_context = k.integer("context_length", 1, kMaxTrainedContext);
  // Blocks that predict further tokens come last and are not used.
  const int64_t blocks = k.integer("block_count", 1, kMaxBlocks),
                extra = k.integer_or("nextn_predict_layers", 0, 0, blocks - 1);
  c.layers.resize(static_cast<size_t>(blocks - extra));
  const io::GgufTensor* embeddings = find("token_embd.weight");
  TG_CHECK(FormatError,
           embeddings && embeddings->shape.size() == 2 && embeddings->shape[1] == c.dim && embeddings->shape[0] >= 1 &&
               embeddings->shape[0] <= kMaxVocabulary,
           "[gguf] ", m.file(), ": token_embd.weight is missing or is no matrix of rows of ", c.dim, " values");
  c.vocab_size = embeddings->shape[0];
  c.norm = a.norm;
  c.norm_eps = k.real_or(a.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                         1e-5, 0, 1);
  c.activation = a.activation;
  c.learned_positions = find("position_embd.weight") != nullptr;
  c.parallel_blocks = k.flag_or("use_parallel_residual", a.parallel_blocks);
  c.post_norm_is_ffn_norm = a.post_norm_is_ffn_norm;
  c.query_gate = a.query_gate;
  read_heads(k, c);
  read_rope(k, a, c);
  if (k.has("feed_forward_length")) {
    const std::vector<int64_t> hidden = k.per_layer("feed_forward_length", c.blocks(), 0, kMaxDim);
    for (size_t i = 0; i < c.layers.size(); i++) c.layers[i].hidden_dim = hidden[i];
  }
  read_windows(k, a, c);
  read_experts(k, a, c);
  read_recurrent(k, c);
  read_scales(k, a, c);
  if (a.rope_free_every != 0)
    for (size_t i = 0; i < c.layers.size(); i++)
      c.layers[i].rope = static_cast<int64_t>(i + 1) % a.rope_free_every != 0;
  check_layers(k, c);
  TensorSizes(m.file(), c, find).check();
  return c;
}

ModelConfig read_model_config(const io::GgufFile& file) {
  return read_model_config(file.metadata(), [&](std::string_view name) { return file.find(name); });
}

}  // namespace tg::llm
