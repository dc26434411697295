/// \file Models that tests of several processes train: digits of MNIST, and a transformer with a block of GPT-2.
#pragma once
#include "tinygrad/tinygrad.h"

namespace tg {

/// A convolution and two layers, on images of MNIST.
struct Digits {
  nn::Conv2d c{1, 8, {5, 5}};
  nn::BatchNorm norm{8};
  nn::Linear l1{8 * 12 * 12, 32}, l2{32, 10};
  Tensor operator()(const Tensor& x) const {
    return l2(l1(norm(c(x).max_pool2d()).relu().flatten(1)).relu().dropout(0.2));
  }
  TG_STATE(c, norm, l1, l2)

  /// Returns the first n images, in [0, 1], and their labels.
  static Tensors samples(int64_t n) {
    const auto sets = nn::datasets::mnist();
    return {(sets.train_images[Slice(0, n)].cast(dtypes::float32) / 255).contiguous().realize(),
            sets.train_labels[Slice(0, n)].cast(dtypes::int32).contiguous().realize()};
  }
};

/// A block of GPT-2: causal attention of several heads and two layers, each behind a norm and added to its input.
struct Block {
  static constexpr int64_t kWidth = 32, kHeads = 4;
  nn::LayerNorm ln_1{kWidth}, ln_2{kWidth};
  nn::Linear q{kWidth, kWidth}, k{kWidth, kWidth}, v{kWidth, kWidth}, c_proj{kWidth, kWidth};
  nn::Linear c_fc{kWidth, 4 * kWidth}, fc2{4 * kWidth, kWidth};
  Tensor operator()(const Tensor& x) const {
    const Tensor h = x + attention(ln_1(x));
    return h + fc2(c_fc(ln_2(h)).gelu());
  }
  Tensor attention(const Tensor& x) const {
    const auto heads = [&](const Tensor& t) {
      return t.reshape(x.shape(0), x.shape(1), kHeads, kWidth / kHeads).transpose(1, 2);
    };
    const Tensor y = heads(q(x)).scaled_dot_product_attention(heads(k(x)), heads(v(x)), {.is_causal = true});
    return c_proj(y.transpose(1, 2).reshape(x.shape(0), x.shape(1), kWidth));
  }
  TG_STATE(ln_1, ln_2, q, k, v, c_proj, c_fc, fc2)
};

/// A block of GPT-2 as its files have it: one matrix for queries, keys and values, another one for gate and hidden
/// layer.
struct FusedBlock {
  static constexpr int64_t kWidth = 32, kHeads = 4;
  nn::LayerNorm ln_1{kWidth}, ln_2{kWidth};
  nn::Linear c_attn{kWidth, 3 * kWidth}, c_proj{kWidth, kWidth}, gate_up{kWidth, 8 * kWidth}, fc2{4 * kWidth, kWidth};
  bool five_axes = false;  ///< heads are split from all three at once
  Tensor operator()(const Tensor& x) const {
    const Tensor h = x + attention(ln_1(x));
    const Tensors gate = gate_up(ln_2(h)).chunk(2, -1);
    return h + fc2(gate[0].gelu() * gate[1]);
  }
  Tensor attention(const Tensor& x) const {
    const SInt batch = x.shape()[0], time = x.shape()[1];
    const Shape by_head{batch, time, kHeads, kWidth / kHeads};
    Tensors qkv = c_attn(x).split(kWidth, -1);
    for (Tensor& t : qkv) t = t.reshape(by_head).transpose(1, 2);
    if (five_axes) {
      const Tensor all = c_attn(x).reshape(Shape{batch, time, 3, kHeads, kWidth / kHeads}).permute(2, 0, 3, 1, 4);
      qkv = {all[0], all[1], all[2]};
    }
    const Tensor y = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2], {.is_causal = true});
    return c_proj(y.transpose(1, 2).reshape(Shape{batch, time, kWidth}));
  }
  TG_STATE(ln_1, ln_2, c_attn, c_proj, gate_up, fc2)
};

/// Predicts the next of 64 symbols from those before it.
template <class B> struct GptOf {
  static constexpr int64_t kSymbols = 64, kTime = 16;
  nn::Embedding wte{kSymbols, Block::kWidth}, wpe{kTime, Block::kWidth};
  B block;
  nn::LayerNorm ln_f{Block::kWidth};
  nn::Linear lm_head{Block::kWidth, kSymbols, false};
  Tensor operator()(const Tensor& x) const {
    const Tensor places = Tensor::arange(kTime).reshape(1, kTime) + (x * 0);  // where x lies
    return lm_head(ln_f(block(wte(x) + wpe(places))));
  }
  TG_STATE(wte, wpe, block, ln_f, lm_head)

  /// Returns n sequences of symbols, and each one's successors.
  static Tensors samples(int64_t n) {
    const Tensor at = Tensor::arange(n * (kTime + 1)).reshape(n, kTime + 1);
    const Tensor all = ((at * at + at * 7) % 61 % kSymbols).cast(dtypes::int32).contiguous().realize();
    return {all.shrink({{0, n}, {0, kTime}}).contiguous().realize(),
            all.shrink({{0, n}, {1, kTime + 1}}).contiguous().realize()};
  }
};

using Gpt = GptOf<Block>;
using FusedGpt = GptOf<FusedBlock>;

/// Returns the mean cross entropy of scores, whose last axis is the class.
inline Tensor loss_of(const Tensor& scores, const Tensor& labels) {
  return (scores.ndim() == 2 ? scores : scores.permute({0, 2, 1})).cross_entropy(labels);
}

}  // namespace tg
