/// \file Multi-head attention.
#pragma once
#include "tinygrad/nn/state.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  ///< of the attention weights, in training mode
  bool bias = true;
  bool batch_first = true;  ///< inputs are (batch, time, embed_dim) instead of (time, batch, embed_dim)
};
struct AttentionMasks {
  Tensor mask = {};  ///< (queries, keys), or with axes for batch and heads before: bool (true: may be seen) or added to
                     ///< the scores
  Tensor key_mask = {};  ///< bool (batch, keys): false for keys nobody may see, such as padding
  bool causal = false;   ///< query i sees keys 0 to i
};

/// Attention of `heads` heads with projections of query, key, value and result. Weight names match PyTorch's. Inputs
/// are (time, batch, embed_dim), or (batch, time, embed_dim) with batch_first; the result has the shape of the query
/// and the type of query and weights together. Throws ShapeError for other inputs and masks.
struct MultiheadAttention {
  Tensor in_proj_weight, in_proj_bias;  ///< (3 embed_dim, embed_dim): Glorot uniform; (3 embed_dim): zeros
  Tensor out_proj_weight,
      out_proj_bias;  ///< (embed_dim, embed_dim): uniform within 1/sqrt(embed_dim); (embed_dim): zeros
  int64_t embed_dim, heads;
  MultiheadAttentionOptions options;
  /// Throws ValueError unless `heads` divides `embed_dim`.
  MultiheadAttention(int64_t embed_dim, int64_t heads, const MultiheadAttentionOptions& o = {});
  /// With given weights, in the order of declaration; biases may be undefined.
  MultiheadAttention(int64_t heads, const Tensors& weights, const MultiheadAttentionOptions& o = {});
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& m = {}) const {
    return with_weights(query, key, value, m).output;
  }
  Tensor operator()(const Tensor& x, const AttentionMasks& m = {}) const { return (*this)(x, x, x, m); }
  struct Result {
    Tensor output;
    Tensor weights;  ///< (batch, heads, queries, keys), computed only when it is used
  };
  /// Attends as operator() does, and returns the weights too. ShapeError as there.
  Result with_weights(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& m = {}) const;
  /// Names the parameters for state_dict().
  void visit_state(StateVisitor& visitor) const;
};

}  // namespace tg::nn
