/// \file Forward passes of the Transformer.
#include "models/transformer.h"

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

Affine random_affine(int64_t in, int64_t out) { return {Tensor::scaled_uniform({in, out}), Tensor::zeros({out})}; }

Affine identity_affine(int64_t size) { return {Tensor::ones({size}), Tensor::zeros({size})}; }

Tensor linear(const Tensor& x, const Affine& a) { return x.linear(a.first, a.second); }

}  // namespace

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o)
    : query(random_affine(o.embed_dim, o.embed_dim)),
      key(random_affine(o.embed_dim, o.embed_dim)),
      value(random_affine(o.embed_dim, o.embed_dim)),
      out(random_affine(o.embed_dim, o.embed_dim)),
      ff1(random_affine(o.embed_dim, o.ff_dim)),
      ff2(random_affine(o.ff_dim, o.embed_dim)),
      ln1(identity_affine(o.embed_dim)),
      ln2(identity_affine(o.embed_dim)),
      options(o) {
  TG_CHECK(ValueError, o.num_heads > 0 && o.embed_dim % o.num_heads == 0, "[TransformerBlock] got ", o.num_heads,
           " heads for ", o.embed_dim, " elements, expected a divisor of them");
}

Tensor TransformerBlock::attention(const Tensor& x) const {
  const auto heads = [&](const Affine& a) {
    return linear(x, a).unflatten(2, {options.num_heads, -1}).transpose(1, 2);
  };
  const Tensor seen = heads(query).scaled_dot_product_attention(heads(key), heads(value));
  return linear(seen.transpose(1, 2).flatten(2), out).dropout(options.dropout);
}

Tensor TransformerBlock::feed_forward(const Tensor& x) const {
  return linear(options.activation(linear(x, ff1)), ff2).dropout(options.dropout);
}

Tensor TransformerBlock::operator()(const Tensor& x) const {
  const auto norm = [&](const Tensor& t, const Affine& a) { return t.layernorm(-1, options.eps) * a.first + a.second; };
  if (options.prenorm) {
    const Tensor y = x + attention(norm(x, ln1));
    return y + feed_forward(norm(y, ln2));
  }
  const Tensor y = norm(x + attention(x), ln1);
  return norm(y + feed_forward(y), ln2);
}

Transformer::Transformer(const TransformerOptions& o)
    : embed(Tensor::scaled_uniform({o.max_length + o.symbols, o.embed_dim}).is_param_(false)),
      final(Tensor::scaled_uniform({o.embed_dim, o.symbols})),
      max_length(o.max_length) {
  for (int64_t i = 0; i < o.layers; i++)
    tbs.emplace_back(TransformerBlockOptions{
        .embed_dim = o.embed_dim, .num_heads = o.num_heads, .ff_dim = o.ff_dim, .dropout = o.dropout});
}

Tensor Transformer::operator()(const Tensor& symbols) const {
  TG_CHECK(ShapeError, symbols.ndim() == 2 && symbols.shape(1) <= max_length, "[Transformer] got ", symbols.shape(),
           ", expected (batch, time) with at most ", max_length, " places");
  Tensor x = embed[Slice(symbols.shape(1))] + nn::embedding(embed[Slice(max_length, None)], symbols);
  for (const TransformerBlock& block : tbs) x = block(x);
  return x.dot(final).log_softmax();
}

}  // namespace tg::models
