/// \file Multi-head attention.
#include "tinygrad/nn/transformer.h"

#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/ops/attention_mask.h"
#include "tinygrad/tensor/ops/product.h"

namespace tg::nn {

MultiheadAttention::MultiheadAttention(int64_t embed, int64_t head_count, const MultiheadAttentionOptions& o)
    : embed_dim(embed), heads(head_count), options(o) {
  TG_CHECK(ValueError, heads > 0 && embed_dim > 0 && embed_dim % heads == 0, "[MultiheadAttention] got ", heads,
           " heads for embed_dim ", embed_dim, ", expected a divisor");
  const auto zeros = [](int64_t n) { return Tensor::zeros(Shape{n}).contiguous().is_param_(); };
  const double bound = 1 / std::sqrt(static_cast<double>(embed_dim));
  in_proj_weight = Tensor::glorot_uniform({3 * embed_dim, embed_dim}).is_param_();
  if (o.bias) in_proj_bias = zeros(3 * embed_dim);
  out_proj_weight = Tensor::uniform({embed_dim, embed_dim}, {.low = -bound, .high = bound}).is_param_();
  if (o.bias) out_proj_bias = zeros(embed_dim);
}

MultiheadAttention::MultiheadAttention(int64_t head_count, const Tensors& w, const MultiheadAttentionOptions& o)
    : heads(head_count), options(o) {
  TG_CHECK(ValueError, w.size() == 4, "[MultiheadAttention] got ", w.size(), " weights, expected 4");
  in_proj_weight = w[0];
  in_proj_bias = w[1];
  out_proj_weight = w[2];
  out_proj_bias = w[3];
  embed_dim = in_proj_weight.shape(-1);
  TG_CHECK(ValueError, heads > 0 && embed_dim % heads == 0, "[MultiheadAttention] got ", heads, " heads for embed_dim ",
           embed_dim, ", expected a divisor");
}

void MultiheadAttention::visit_state(StateVisitor& visitor) const {
  visitor.member("in_proj_weight", in_proj_weight);
  visitor.member("in_proj_bias", in_proj_bias);
  visitor.member("out_proj.weight", out_proj_weight);
  visitor.member("out_proj.bias", out_proj_bias);
}

MultiheadAttention::Result MultiheadAttention::with_weights(const Tensor& query, const Tensor& key, const Tensor& value,
                                                            const AttentionMasks& m) const {
  for (const Tensor* t : {&query, &key, &value})
    TG_CHECK(ShapeError, t->ndim() == 3 && t->shape(2) == embed_dim, "[MultiheadAttention] got an input of shape ",
             t->shape(), ", expected ", options.batch_first ? "(batch, time, " : "(time, batch, ", embed_dim, ")");
  TG_CHECK(ShapeError, key.shape() == value.shape(), "[MultiheadAttention] got keys of shape ", key.shape(),
           " and values of shape ", value.shape(), ", expected the same");
  if (in_proj_weight.devices().size() > 1 && in_proj_weight.shard_axis() == 0) {
    const auto parts = embed_dim * 3 / in_proj_weight.to_local().shape(0);
    TG_CHECK(ShapeError, heads % parts == 0, "[MultiheadAttention] got ", heads, " heads in in_proj_weight for ", parts,
             " processes, expected a multiple");
  }
  // (batch, heads, time, embed_dim / heads)
  const auto projected = [&](const Tensor& x, int64_t which) {
    const Slice rows(which * embed_dim, (which + 1) * embed_dim);
    const Tensor t = options.batch_first ? x : x.transpose(0, 1);
    const Tensor y = t.linear(in_proj_weight[rows].transpose(), in_proj_bias.defined() ? in_proj_bias[rows] : Tensor());
    return y.reshape(t.shape(0), t.shape(1), heads, embed_dim / heads).transpose(1, 2);
  };
  const Tensor q = projected(query, 0), k = projected(key, 1), v = projected(value, 2);
  // Scores of narrow floats and their softmax stay in their accumulation type.
  const DType type = q.dtype();
  Tensor scores = q.matmul(k.transpose(-2, -1), tensor_detail::wide_dtype(type)) /
                  std::sqrt(static_cast<double>(embed_dim / heads));
  Tensors masks;
  if (m.mask.defined()) masks.push_back(m.mask);
  if (m.key_mask.defined()) {
    TG_CHECK(ShapeError, m.key_mask.shape() == (Shape{k.shape(0), k.shape(2)}),
             "[MultiheadAttention] got a key_mask of shape ", m.key_mask.shape(), ", expected (", k.shape(0), ", ",
             k.shape(2), ")");
    masks.push_back(m.key_mask.unsqueeze(1).unsqueeze(1));
  }
  scores = attention::masked(scores, masks, m.causal);
  const Tensor weights = masks.empty() ? scores.softmax(-1) : attention::softmax_or_zero(scores);
  const Tensor y =
      weights.dropout(options.dropout).matmul(v).cast(type).transpose(1, 2).reshape(q.shape(0), q.shape(2), embed_dim);
  const Tensor out = y.linear(out_proj_weight.transpose(), out_proj_bias);
  return {options.batch_first ? out : out.transpose(0, 1), weights.cast(type)};
}

}  // namespace tg::nn
