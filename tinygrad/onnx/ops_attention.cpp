/// \file Attention: softmax of scores, linear attention, rotated positions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tinygrad/onnx/heads.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Which keys a query sees, as numbers that are added to scores: 0 or -infinity.
Tensor bias_of(const Tensor& allowed, DType d) { return allowed.where(Tensor(0.0), Tensor(-kInfinity)).cast(d); }

/// Number of keys before the first query: of the cache, or for each row of a batch.
Tensor key_offset(const NodeContext& c, int64_t queries, int64_t past) {
  if (c.has(4) || !c.has(6)) return Tensor::full({}, past, {.dtype = dtypes::int64, .device = c.device()});
  return c.tensor(6).cast(dtypes::int64).reshape(Shape{-1, 1, 1, 1}) - queries;
}

/// The mask of the inputs, causal order, windows and padding together; undefined where all is seen.
Tensor attention_bias(const NodeContext& c, DType d, int64_t queries, int64_t keys, int64_t past) {
  Tensor bias;
  const auto add = [&](const Tensor& t) { bias = bias.defined() ? bias + t : t; };
  if (c.has(3)) {
    Tensor mask = c.tensor(3);
    if (mask.dtype().is_bool()) mask = bias_of(mask, d);
    if (const int64_t more = keys - mask.shape(-1); more > 0) {
      std::vector<std::pair<int64_t, int64_t>> amounts(static_cast<size_t>(mask.ndim()), {0, 0});
      amounts.back().second = more;
      mask = mask.pad(amounts, {.value = -kInfinity});
    }
    add(mask.cast(d));
  }
  const int64_t left = c.attr("left_window_size", int64_t{-1}), right = c.attr("right_window_size", int64_t{-1});
  const Tensor query = count_along(queries, 0, 2, dtypes::int64, c.device()) + key_offset(c, queries, past);
  const Tensor key = count_along(keys, 1, 2, dtypes::int64, c.device());
  if (c.flag("is_causal")) add(bias_of(key.le(query), d));
  if (left >= 0) add(bias_of((query - key).le(Tensor(left)), d));
  if (right >= 0) add(bias_of((key - query).le(Tensor(right)), d));
  if (c.has(6)) add(bias_of(key.lt(c.tensor(6).cast(dtypes::int64).reshape(Shape{-1, 1, 1, 1})), d));
  return bias;
}

/// Softmax of rows; one in which no key is seen is 0.
Tensor masked_softmax(const Tensor& scores, const Tensor& bias) {
  if (!bias.defined()) return scores.softmax(-1);
  const Tensor hidden = bias.max(-1, true).eq(Tensor(-kInfinity));
  const Tensor safe = hidden.where(scores.zeros_like(), scores);
  return hidden.where(scores.zeros_like(), safe.softmax(-1)).cast(scores.dtype());
}

Values attention(NodeContext& c) {
  Tensor q = c.tensor(0), k = c.tensor(1), v = c.tensor(2);
  const bool joined = q.ndim() == 3;
  const DType d = q.dtype();
  if (joined) {
    q = split_heads(c, q, c.required_int("q_num_heads"));
    k = split_heads(c, k, c.required_int("kv_num_heads"));
    v = split_heads(c, v, c.required_int("kv_num_heads"));
  }
  int64_t past = 0;
  if (c.has(4)) {
    past = c.tensor(4).shape(2);
    k = c.tensor(4).cat(k, 2);
    v = c.tensor(5).cat(v, 2);
  }
  const Tensor present_key = k, present_value = v;
  k = shared_heads(c, k, q.shape(1));
  v = shared_heads(c, v, q.shape(1));
  const double scale = c.attr("scale", 1 / std::sqrt(static_cast<double>(q.shape(3)))), root = std::sqrt(scale);
  const double cap = c.attr("softcap", 0.0);
  const int64_t mode = c.attr("qk_matmul_output_mode", int64_t{0});
  Tensor scores = (q * root).dot((k * root).transpose(-1, -2)).cast(d);
  Tensor shown = scores;
  if (cap > 0) scores = ((scores / cap).tanh() * cap).cast(d);
  if (mode == 1) shown = scores;
  const Tensor bias = attention_bias(c, d, q.shape(2), k.shape(2), past);
  if (bias.defined()) scores = scores + bias;
  if (mode == 2) shown = scores;
  if (const std::optional<int64_t> precision = c.optional_int("softmax_precision"))
    scores = scores.cast(c.dtype_of(static_cast<ElemType>(*precision)));
  const Tensor weights = masked_softmax(scores, bias).cast(d);
  if (mode == 3) shown = weights;
  const Tensor out = weights.dot(v).cast(d);
  return {joined ? join_heads(out) : out, present_key, present_value, shown};
}

/// Attention whose scores and probabilities are changed by graphs.
Values flex_attention(NodeContext& c) {
  const Tensor q = c.tensor(0), k = shared_heads(c, c.tensor(1), q.shape(1)),
               v = shared_heads(c, c.tensor(2), q.shape(1));
  const double root = std::sqrt(c.attr("scale", 1 / std::sqrt(static_cast<double>(q.shape(3)))));
  const std::optional<int64_t> precision = c.optional_int("softmax_precision");
  const DType wide = precision ? c.dtype_of(static_cast<ElemType>(*precision)) : wide_float(q.dtype());
  const auto changed = [&](const char* graph, const Tensor& t) {
    if (!c.has_attribute(graph)) return t;
    return c.run().call_graph(c.graph(graph), {t}, c.frame()).at(0).as_tensor(c.device()).cast(wide);
  };
  const Tensor scores = (q * root).dot((k * root).transpose(-1, -2)).cast(wide);
  const Tensor weights = changed("prob_mod", changed("score_mod", scores).softmax(-1));
  return {weights.dot(v.cast(wide)).cast(v.dtype())};
}

/// A state of (keys, values) that decays, and takes up each step's key and value.
Values linear_attention(NodeContext& c) {
  const int64_t heads = c.required_int("q_num_heads"), own = c.required_int("kv_num_heads");
  const std::string rule = c.choice("update_rule", "gated_delta", {"linear", "gated", "delta", "gated_delta"});
  const DType d = c.tensor(0).dtype();
  const auto split = [&](size_t i, int64_t n) { return split_heads(c, c.tensor(i).cast(dtypes::float32), n); };
  const Tensor q = split(0, heads), k = split(1, own), v = split(2, own);
  const int64_t batch = q.shape(0), time = q.shape(2), key_size = k.shape(3), value_size = v.shape(3);
  c.check(time > 0 && time <= 1 << 15, "got a sequence of ", time, " steps");
  const bool gated = rule.starts_with("gated"), corrected = rule.ends_with("delta");
  const Tensor decay = gated ? split(4, own) : Tensor();
  const Tensor beta = corrected ? split(5, c.tensor(5).shape(2)) : Tensor();
  Tensor state = c.has(3) ? c.tensor(3).cast(dtypes::float32)
                          : Tensor::zeros(Shape{batch, own, key_size, value_size}, {.device = c.device()});
  const double given = c.attr("scale", 0.0), scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(key_size));
  Tensors outputs;
  for (int64_t t = 0; t < time; t++) {
    const auto at = [&](const Tensor& x) { return x.slice(2, t, t + 1); };  // (batch, heads, 1, size)
    if (gated) state = state * at(decay).exp().transpose(2, 3);
    Tensor value = at(v);
    if (corrected) value = at(beta) * (value - at(k).dot(state));
    state = state + at(k).transpose(2, 3) * value;
    outputs.push_back(at(q).dot(shared_heads(c, state, heads)) * scale);
  }
  const DType kept = c.has(3) ? c.tensor(3).dtype() : d;
  return {join_heads(Tensor::cat(outputs, 2)).cast(d), state.cast(kept)};
}

Values rotary(NodeContext& c) {
  // com.microsoft has the positions as the second input, the default domain as the fourth.
  const bool microsoft = c.node().domain == "com.microsoft";
  Tensor x = c.tensor(0), cos = c.tensor(microsoft ? 2 : 1), sin = c.tensor(microsoft ? 3 : 2);
  const bool joined = x.ndim() == 3;
  if (joined) {
    const int64_t size = c.attr("rotary_embedding_dim", int64_t{0});
    int64_t heads = c.attr("num_heads", int64_t{0});
    if (heads == 0) heads = x.shape(2) / (size ? size : cos.shape(-1) * 2);
    x = split_heads(c, x, heads);
  }
  const size_t at = microsoft ? 1 : 3;
  if (c.has(at)) {
    Tensor position = c.tensor(at).cast(dtypes::int64);
    if (microsoft && position.numel() == 1)  // of the first step
      position = position.reshape(Shape{1, 1}) + count_along(x.shape(2), 1, 2, dtypes::int64, c.device());
    cos = cos[position];
    sin = sin[position];
  }
  const Tensor out = rotated(x, cos.unsqueeze(1), sin.unsqueeze(1), c.flag("interleaved")).cast(x.dtype());
  return {joined ? join_heads(out) : out};
}

const OperatorRow kRows[] = {
    {"", "Attention", 23, attention},
    {"", "RotaryEmbedding", 23, rotary},
    {"", "LinearAttention", 27, linear_attention},
    {"ai.onnx.preview", "FlexAttention", 1, flex_attention},
    {"com.microsoft", "RotaryEmbedding", 1, rotary},
};

}  // namespace

OperatorRows attention_operators() { return kRows; }

}  // namespace tg::onnx
