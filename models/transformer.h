/// \file A Transformer of encoder blocks (Vaswani et al., "Attention Is All You Need", arXiv 1706.03762) whose weights
/// are matrices (in, out).
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// A matrix (in, out), or factors (in), and what is added: (out).
using Affine = std::pair<Tensor, Tensor>;

struct TransformerBlockOptions {
  int64_t embed_dim = 0, num_heads = 1, ff_dim = 0;
  bool prenorm = false;  ///< norms are before attention and feed-forward layers, not behind their sums
  std::function<Tensor(const Tensor&)> activation = [](const Tensor& x) { return x.relu(); };
  double dropout = 0.1;  ///< of what is added to the shortcuts, in training mode
  double eps = 1e-5;     ///< of the norms
};

/// Attention of all elements to all, and two linear layers, each around a shortcut and with a norm:
/// (batch, time, embed_dim) -> the same.
struct TransformerBlock {
  Affine query, key, value, out, ff1, ff2;  ///< matrices: uniform within 1/sqrt(number of elements)
  Affine ln1, ln2;
  TransformerBlockOptions options;
  /// Makes a block with random weights. ValueError unless the number of heads divides embed_dim.
  explicit TransformerBlock(const TransformerBlockOptions& o);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(query, key, value, out, ff1, ff2, ln1, ln2)

 private:
  Tensor attention(const Tensor& x) const;
  Tensor feed_forward(const Tensor& x) const;
};

struct TransformerOptions {
  int64_t symbols = 0, max_length = 0;
  int64_t layers = 2, embed_dim = 128, num_heads = 4, ff_dim = 512;
  double dropout = 0.1;
};

/// Predicts a symbol at each place from the symbols at all places: numbers (batch, time) ->
/// (batch, time, symbols), logarithms of probabilities.
struct Transformer {
  Tensor embed;  ///< (max_length + symbols, embed_dim): a row for each place and each symbol; not trained
  std::vector<TransformerBlock> tbs;
  Tensor final;  ///< (embed_dim, symbols)
  int64_t max_length;
  /// Makes the network with random weights. ValueError unless the number of heads divides embed_dim.
  explicit Transformer(const TransformerOptions& o);
  /// Throws ShapeError unless there are two axes, of which the second has at most max_length elements.
  Tensor operator()(const Tensor& symbols) const;
  TG_STATE(embed, tbs, final)
};

}  // namespace tg::models
