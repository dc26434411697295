/// \file Operators of com.microsoft that transformers are exported or optimized to.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tinygrad/onnx/heads.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

Tensor fast_gelu(const Tensor& x) { return x.gelu(true); }
Tensor exact_gelu(const Tensor& x) { return x * 0.5 * ((x * 0.70710678118654752).erf() + 1); }

Values gelu_with_bias(NodeContext& c) {
  Tensor x = c.tensor(0);
  if (c.has(1)) x = x + c.tensor(1);
  return {c.node().op == "FastGelu" ? fast_gelu(x) : exact_gelu(x)};
}

/// Returns (batch, keys), 1 for keys that count: those before the end of their row, and where starts follow the ends
/// of all rows, from its start on.
Tensor keys_between(const NodeContext& c, const Tensor& bounds, int64_t batch, int64_t keys) {
  const int64_t n = bounds.shape(0);
  c.check(n == batch || n == 2 * batch, "mask_index has ", n, " numbers for ", batch, " rows, expected ", batch, " or ",
          2 * batch);
  const Tensor at = count_along(keys, 1, 2, dtypes::int64, c.device());
  Tensor seen = at.lt(bounds.slice(0, 0, batch).unsqueeze(1));
  if (n > batch) seen = seen.bitwise_and(at.ge(bounds.slice(0, batch, n).unsqueeze(1)));
  return seen.cast(dtypes::int64);
}

/// Returns what is added to scores for keys that are masked: (batch), lengths, or (2 batch), see keys_between; (batch,
/// keys), 1 for those that count; or more axes of the same.
Tensor mask_bias(const NodeContext& c, const Tensor& mask, int64_t batch, int64_t keys, DType d) {
  const double low = c.attr("mask_filter_value", -10000.0);
  Tensor seen = mask.cast(dtypes::int64);
  if (seen.ndim() == 1) seen = keys_between(c, seen, batch, keys);
  if (seen.ndim() == 2) seen = seen.unsqueeze(1).unsqueeze(1);
  if (seen.ndim() == 3) seen = seen.unsqueeze(1);
  return seen.eq(Tensor(0)).where(Tensor(low), Tensor(0.0)).cast(d);
}

/// Queries, keys and values, (batch, heads, time, size), with what is added to their scores.
struct Parts {
  Tensor q, k, v, bias;
  int64_t past = 0;
  void add(const Tensor& t) { bias = bias.defined() ? bias + t : t; }
};

Tensor attend(const NodeContext& c, Parts p, bool causal) {
  const double given = c.attr("scale", 0.0);
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(p.q.shape(3)));
  if (causal) {
    const Tensor query = count_along(p.q.shape(2), 0, 2, dtypes::int64, c.device()) + p.past;
    const Tensor key = count_along(p.k.shape(2), 1, 2, dtypes::int64, c.device());
    p.add(key.le(query).where(Tensor(0.0), Tensor(-std::numeric_limits<double>::infinity())).cast(p.q.dtype()));
  }
  Tensor scores = p.q.dot(p.k.transpose(-1, -2)) * scale;
  if (const double cap = c.attr("softcap", 0.0); cap > 0) scores = (scores / cap).tanh() * cap;
  if (p.bias.defined()) scores = scores + p.bias;
  return join_heads(scores.softmax(-1).dot(p.v)).cast(p.q.dtype());
}

/// Attention of one input, which a matrix makes queries, keys and values of.
Values attention(NodeContext& c) {
  const int64_t heads = c.required_int("num_heads");
  Tensor x = c.tensor(0).dot(c.tensor(1));
  if (c.has(2)) x = x + c.tensor(2);
  const int64_t whole = x.shape(2);
  std::vector<int64_t> sizes = c.attr_ints("qkv_hidden_sizes");
  if (sizes.empty()) sizes.assign(3, whole / 3);
  const Tensors parts = x.split(sizes, 2);
  c.check(parts.size() == 3, "qkv_hidden_sizes has ", sizes.size(), " numbers, expected 3");
  Parts p{split_heads(c, parts[0], heads), split_heads(c, parts[1], heads), split_heads(c, parts[2], heads), {}};
  if (c.has(4)) {  // keys and values of earlier steps
    const Tensor past = c.tensor(4);
    p.past = past.shape(3);
    p.k = past[0].cat(p.k, 2);
    p.v = past[1].cat(p.v, 2);
  }
  const Value present = c.wants(1) ? Value(Tensor::stack({p.k, p.v}, 0)) : Value();
  if (c.has(3)) p.add(mask_bias(c, c.tensor(3), x.shape(0), p.k.shape(2), p.q.dtype()));
  if (c.has(5)) p.add(c.tensor(5));
  return {attend(c, p, c.flag("unidirectional")), present};
}

Values multi_head_attention(NodeContext& c) {
  const int64_t heads = c.required_int("num_heads");
  c.check(c.has(1) && c.has(2), "queries, keys and values in one input are not supported");
  Tensor q = c.tensor(0), k = c.tensor(1), v = c.tensor(2);
  if (c.has(3)) {
    const Tensor b = c.tensor(3);
    const int64_t n = q.shape(2), m = b.shape(0) - 2 * n;
    q = q + b.slice(0, 0, n);
    if (k.ndim() == 3) k = k + b.slice(0, n, 2 * n);
    if (v.ndim() == 3) v = v + b.slice(0, 2 * n, 2 * n + m);
  }
  const auto split = [&](const Tensor& t) { return t.ndim() == 4 ? t : split_heads(c, t, heads); };
  Parts p{split(q), split(k), split(v), {}};
  if (c.has(6) && c.has(7)) {
    p.past = c.tensor(6).shape(2);
    p.k = c.tensor(6).cat(p.k, 2);
    p.v = c.tensor(7).cat(p.v, 2);
  }
  const Tensor key = p.k, value = p.v;
  if (c.has(4)) p.add(mask_bias(c, c.tensor(4), q.shape(0), p.k.shape(2), p.q.dtype()));
  if (c.has(5)) p.add(c.tensor(5));
  return {attend(c, p, c.flag("unidirectional")), key, value};
}

/// Attention with fewer heads of keys and values, and a cache of them; all rows of a batch are equally long.
Values group_query_attention(NodeContext& c) {
  const int64_t heads = c.required_int("num_heads"), own = c.required_int("kv_num_heads");
  Tensor q = c.tensor(0), k, v;
  if (c.has(1)) {
    k = c.tensor(1);
    v = c.tensor(2);
  } else {  // side by side in one input
    c.check(heads > 0 && own > 0 && heads < 4096 && own < 4096, "got ", heads, " and ", own, " heads");
    const int64_t size = q.shape(2) / (heads + 2 * own);
    const Tensors parts = q.split(std::vector<int64_t>{heads * size, own * size, own * size}, 2);
    q = parts[0];
    k = parts[1];
    v = parts[2];
  }
  Parts p{split_heads(c, q, heads), split_heads(c, k, own), split_heads(c, v, own), {}};
  const HostRef total = c.data(6);
  p.past = static_cast<int64_t>(total->number(0)) - q.shape(1);
  c.check(p.past >= 0, "total_sequence_length is ", total->number(0), " for ", q.shape(1), " new steps");
  if (c.flag("do_rotary")) {
    const Tensor position = count_along(q.shape(1), 1, 2, dtypes::int64, c.device()) + p.past;
    const Tensor cos = c.tensor(7)[position].unsqueeze(1), sin = c.tensor(8)[position].unsqueeze(1);
    p.q = rotated(p.q, cos, sin, c.flag("rotary_interleaved"));
    p.k = rotated(p.k, cos, sin, c.flag("rotary_interleaved"));
  }
  if (c.has(3) && p.past > 0) {
    p.k = c.tensor(3).slice(2, 0, p.past).cat(p.k, 2);
    p.v = c.tensor(4).slice(2, 0, p.past).cat(p.v, 2);
  }
  const Tensor key = p.k, value = p.v;
  p.k = shared_heads(c, p.k, heads);
  p.v = shared_heads(c, p.v, heads);
  if (const int64_t window = c.attr("local_window_size", int64_t{-1}); window > 0) {
    const Tensor query = count_along(p.q.shape(2), 0, 2, dtypes::int64, c.device()) + p.past;
    const Tensor at = count_along(p.k.shape(2), 1, 2, dtypes::int64, c.device());
    p.add((query - at)
              .lt(Tensor(window))
              .where(Tensor(0.0), Tensor(-std::numeric_limits<double>::infinity()))
              .cast(p.q.dtype()));
  }
  return {attend(c, p, true), key, value};
}

/// The sum of word, position and segment embeddings, normalized.
Values embed_layer_norm(NodeContext& c) {
  const Tensor ids = c.tensor(0).cast(dtypes::int64);
  const int64_t time = ids.shape(1);
  const Tensor position =
      c.has(8) ? c.tensor(8).cast(dtypes::int64) : count_along(time, 1, 2, dtypes::int64, c.device());
  Tensor sum = c.tensor(2)[ids] + c.tensor(3)[position];
  if (c.has(1) && c.has(4)) sum = sum + c.tensor(4)[c.tensor(1).cast(dtypes::int64)];
  const Tensor centered = sum - sum.mean(-1, true);
  const Tensor scaled = centered * ((centered * centered).mean(-1, true) + c.attr("epsilon", 1e-12)).rsqrt();
  const Tensor lengths = c.has(7)
                             ? c.tensor(7).cast(dtypes::int32).sum(1)
                             : Tensor::zeros(Shape{ids.shape()[0]}, {.dtype = dtypes::int32, .device = c.device()});
  return {scaled * c.tensor(5) + c.tensor(6), lengths, sum};
}

const OperatorRow kRows[] = {
    {"com.microsoft", "FastGelu", 1, gelu_with_bias},
    {"com.microsoft", "BiasGelu", 1, gelu_with_bias},
    {"com.microsoft", "Attention", 1, attention},
    {"com.microsoft", "MultiHeadAttention", 1, multi_head_attention},
    {"com.microsoft", "GroupQueryAttention", 1, group_query_attention},
    {"com.microsoft", "EmbedLayerNormalization", 1, embed_layer_norm},
};

}  // namespace

OperatorRows microsoft_operators() { return kRows; }

}  // namespace tg::onnx
