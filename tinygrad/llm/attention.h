/// \file Attention of a decoder's layer: ordinary (groups of heads share keys and values), and latent.
#pragma once
#include <memory>
#include <optional>

#include "tinygrad/llm/kv_cache.h"
#include "tinygrad/llm/model_config.h"
#include "tinygrad/llm/rope_table.h"
#include "tinygrad/llm/weights.h"

namespace tg::llm {

/// What every layer of a step is told.
struct StepContext {
  StepRows rows;
  StepRows windowed;                 ///< the same rows, reading the blocks that windows reach
  RopeTable::Rows rope, rope_local;  ///< undefined without rotary positions
  Tensor valid;                      ///< bool (batch, time): the row is a token
  Tensor last;                       ///< int32 (batch): the number of the last token's row
};

/// What mixes tokens: it reads hidden states (batch, time, dim) and keeps what later steps need.
class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual Tensor operator()(const Tensor& x, const StepContext& step) = 0;
  /// Whether the processes that share the model compute a part each, whose sum is the result.
  virtual bool divided() const = 0;
  virtual int64_t cache_bytes() const = 0;
  /// Gives sequence `to` what `from` knows of its first `tokens` tokens.
  virtual void copy(int64_t from, int64_t to, int64_t tokens) = 0;
};

struct CacheOptions {
  int64_t sequences = 1, blocks = 1;
  DType dtype = dtypes::float16;
};

/// Rotary tables of a model; undefined ones are not used by it.
struct RopeTables {
  std::optional<RopeTable> all, local;
};

/// Return the sizes of the cache of a layer, in this process.
KeyValueCache::Sizes attention_cache(const ModelConfig& config, const LayerConfig& layer, const ModelShare& share,
                                     const CacheOptions& cache);
KeyValueCache::Sizes latent_attention_cache(const ModelConfig& config, const CacheOptions& cache);

std::unique_ptr<Mixer> make_attention(const Weights& w, const std::string& prefix, const LayerConfig& layer,
                                      const RopeTables& ropes, const CacheOptions& cache);
std::unique_ptr<Mixer> make_latent_attention(const Weights& w, const std::string& prefix, const LayerConfig& layer,
                                             const RopeTables& ropes, const CacheOptions& cache);

/// Which scores count, and how they are shaped.
struct ScoreOptions {
  double scale = 1;
  double softcap = 0;  ///< c: s -> c tanh(s / c); 0: none
  int64_t window = 0;  ///< keys a query sees, its own included; 0: all
};
/// softmax(q k^T) v where row t of sequence b sees the positions up to positions[b, t]: q (batch, time, heads, dim),
/// keys and values as the cache gives them -> (batch, time, heads, value_dim).
Tensor attend(const Tensor& q, const Tensor& keys, const Tensor& values, const StepRows& rows, const ScoreOptions& o);

}  // namespace tg::llm
