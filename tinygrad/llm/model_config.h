/// \file ModelConfig: what a GGUF file says about a decoder, checked, and what its architecture implies.
///
/// Source of the keys: the specification of GGUF (docs/gguf.md of the ggml project), with `{arch}` the value of
/// `general.architecture`.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tg::io {
class GgufFile;
class GgufMetadata;
struct GgufTensor;
}  // namespace tg::io

namespace tg::llm {

// Limits of hyperparameters: a file that exceeds one is refused before anything is allocated.
inline constexpr int64_t kMaxBlocks = 1024;
inline constexpr int64_t kMaxDim = int64_t{1} << 20;  ///< of embeddings, heads and hidden layers
inline constexpr int64_t kMaxHeads = int64_t{1} << 14;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxTrainedContext = int64_t{1} << 27;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxConvKernel = 256;

/// Which elements of a head are turned together.
enum class RopePairs : uint8_t {
  kNone,      ///< no rotary positions
  kAdjacent,  ///< 2i and 2i + 1
  kHalves,    ///< i and i + half
};
enum class RopeScaling : uint8_t { kNone, kLinear, kYarn, kLongRope };

/// Rotary positions: pair i of position p is turned by p * base^(-2i / dims), scaled.
struct RopeConfig {
  RopePairs pairs = RopePairs::kNone;
  int64_t dims = 0;  ///< of a head, from its start (MLA: a part of its own)
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             ///< how much longer than trained contexts may be
  int64_t original_context = 0;  ///< of training, before it was stretched
  double attention_factor = 1;   ///< multiplies cosines and sines
  double yarn_extrapolation = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
  double yarn_log_multiplier = 0;  ///< MLA: the scale of scores grows with the logarithm of `factor` instead
};

enum class NormKind : uint8_t { kRms, kLayer };
enum class Activation : uint8_t { kSilu, kGelu, kReluSquared };

/// How router logits become weights of experts; numbers as in `expert_gating_func`.
enum class ExpertGating : uint8_t {
  kSoftmax = 1,
  kSigmoid = 2,
  kSoftmaxOfSelected = 3,
  kSqrtSoftplus = 4,
};

struct ExpertConfig {
  int64_t count = 0, used = 0;
  int64_t hidden_dim = 0;
  int64_t groups = 1, groups_used = 1;  ///< experts are chosen among those of the best groups only
  bool normalize = false;               ///< weights of the chosen ones sum to 1
  double scale = 1;
  ExpertGating gating = ExpertGating::kSoftmax;
};

/// Multi-head latent attention: keys and values of all heads are one vector per token.
struct LatentConfig {
  int64_t kv_rank = 0;  ///< 0: ordinary attention
  int64_t q_rank = 0;   ///< 0: queries have one projection
};

/// Gated delta net: a matrix per head that decays and learns each token's value.
struct RecurrentConfig {
  int64_t conv_kernel = 0, state_size = 0, groups = 0, heads = 0, inner_dim = 0;
};

struct LayerConfig {
  int64_t heads = 0, kv_heads = 0;
  int64_t hidden_dim = 0;  ///< of a dense feed-forward network
  int64_t window = 0;      ///< how many tokens a query sees, itself included, the same in all layers; 0: all
  bool rope = true;
  bool local_rope = false;  ///< turned as `rope_local` says
  bool recurrent = false;
  bool experts = false;
};

struct ModelConfig {
  std::string architecture, name;
  int64_t dim = 0, vocab_size = 0, trained_context = 0;
  int64_t head_dim = 0, value_dim = 0;  ///< of a key and of a value
  std::vector<LayerConfig> layers;
  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  Activation activation = Activation::kSilu;
  RopeConfig rope, rope_local;
  bool learned_positions = false;                   ///< position_embd
  bool parallel_blocks = false;                     ///< attention and feed-forward network read the same input
  bool post_norm_is_ffn_norm = false;               ///< post_attention_norm is the norm before the feed-forward network
  double attention_scale = 0;                       ///< of scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0, logit_softcap = 0;  ///< c: x -> c tanh(x / c); 0: none
  double clamp_qkv = 0;                             ///< bound of queries, keys and values; 0: none
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  ExpertConfig experts;
  LatentConfig latent;
  RecurrentConfig recurrent;
  bool query_gate = false;  ///< attn_q holds a gate for each query, applied to the output of the head

  int64_t blocks() const { return static_cast<int64_t>(layers.size()); }
  bool has_recurrent_layer() const;
};

/// Names of architectures, as `general.architecture` says them, in alphabetical order.
std::vector<std::string_view> known_architectures();

/// Returns the row of a file's table of tensors, or nullptr when there is none of this name.
using FindGgufTensor = std::function<const io::GgufTensor*(std::string_view name)>;

/// Reads the hyperparameters of a file and compares sizes of heads and states with its tensors. FormatError that names
/// offset and key for one that is missing, out of range or at odds with others or with a tensor, and for an
/// architecture that is not in the table.
ModelConfig read_model_config(const io::GgufMetadata& metadata, const FindGgufTensor& find);
ModelConfig read_model_config(const io::GgufFile& file);

}  // namespace tg::llm
