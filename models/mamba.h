/// \file Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", arXiv 2312.00752):
/// language models without attention, with the names of weights of the published files.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Sizes of Mamba; those of the network of 130 million weights without changes.
struct MambaOptions {
  int64_t vocab_size = 50280;  ///< padded to a multiple of 8
  int64_t dim = 768;
  int64_t layers = 24;
  int64_t state = 16;  ///< numbers each channel remembers
  int64_t conv = 4;    ///< tokens the convolution sees
  int64_t expand = 2;  ///< channels of a layer are this times dim
  int64_t rank = 0;    ///< of the projection that makes step sizes; 0: dim / 16, rounded up
  double eps = 1e-5;
};
/// Returns the sizes of a published network: "130m", "370m", "790m", "1.4b" or "2.8b". ValueError for another name.
MambaOptions mamba_options(std::string_view name);

/// What a layer remembers of the tokens so far.
struct MambaLayerState {
  Tensor inputs;  ///< of the convolution, (batch, channels, conv - 1)
  Tensor states;  ///< (batch, channels, state)
  /// Lets captured functions find the tensors.
  template <class F> void visit_tensors(F&& f) {
    f(inputs);
    f(states);
  }
};
using MambaState = std::vector<MambaLayerState>;

/// A selective state space: (batch, time, dim) -> the same shape.
struct MambaMixer {
  nn::Linear in_proj;
  nn::Conv2d conv1d;
  nn::Linear x_proj, dt_proj;
  Tensor a_log, d;  ///< (channels, state), (channels)
  nn::Linear out_proj;
  explicit MambaMixer(const MambaOptions& o);
  /// Goes on from `state`, and leaves there what follows.
  Tensor operator()(const Tensor& x, MambaLayerState& state) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;

 private:
  Tensor scan(const Tensor& x, const Tensor& step, const Tensor& write, const Tensor& read, Tensor& states) const;
};

/// A mixer behind a norm, around a shortcut.
struct MambaBlock {
  MambaMixer mixer;
  nn::RMSNorm norm;
  explicit MambaBlock(const MambaOptions& o) : mixer(o), norm(o.dim, {.eps = o.eps}) {}
  TG_STATE(mixer, norm)
};

/// The language model.
struct Mamba {
  nn::Embedding embedding;
  std::vector<MambaBlock> layers;
  nn::RMSNorm norm_f;
  nn::Linear lm_head;
  MambaOptions options;
  /// Makes the network with random weights. ValueError for sizes that are not positive.
  explicit Mamba(const MambaOptions& o = {});
  /// Returns logits (batch, time, vocabulary) for tokens (batch, time). ShapeError for other than two axes.
  Tensor operator()(const Tensor& tokens) const;
  /// Returns the state before the first token.
  MambaState start(int64_t batch) const;
  struct Step {
    Tensor logits;
    MambaState state;
    /// Lets captured functions find the tensors.
    template <class F> void visit_tensors(F&& f) {
      f(logits);
      for (MambaLayerState& s : state) s.visit_tensors(f);
    }
  };
  /// Goes on behind `state` with any number of tokens. ShapeError for a state of other batches or layers.
  Step step(const Tensor& tokens, const MambaState& state) const;
  /// Returns the `count` most probable tokens behind a prompt, one after the other. ValueError for an empty prompt.
  std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, int64_t count) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Returns weights of the published files, or of those with the names of transformers, where words' embeddings may
/// serve as the last layer too.
nn::StateDict mamba_weights(const nn::StateDict& file);

}  // namespace tg::models
