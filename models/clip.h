/// \file CLIP (Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", arXiv
/// 2103.00020): the text encoder of OpenAI's ViT-L/14 under the names of its PyTorch files, and OpenCLIP's encoders of
/// texts and images (Cherti et al., "Reproducible scaling laws for contrastive language-image learning", arXiv
/// 2212.07143) under OpenCLIP's. Stable Diffusion reads prompts through them. Tokens come from models/clip_tokenizer.h.
#pragma once
#include <cstdint>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Sizes of a text encoder; those of ViT-L/14 without changes.
struct ClipTextOptions {
  int64_t vocab_size = 49408;
  int64_t width = 768;
  int64_t layers = 12;
  int64_t heads = 12;        ///< divides width
  int64_t positions = 77;    ///< tokens a text may have
  int64_t projection = 768;  ///< size of a text's vector
};
/// Sizes of an image encoder; those of ViT-H/14 without changes.
struct ClipImageOptions {
  int64_t width = 1280;
  int64_t layers = 32;
  int64_t heads = 16;  ///< divides width
  int64_t image_size = 224;
  int64_t patch_size = 14;    ///< divides image_size
  int64_t projection = 1024;  ///< size of an image's vector
};

/// What a text encoder makes of tokens (batch, time).
struct ClipText {
  Tensor hidden;       ///< of the last layer, normalized: (batch, time, width)
  Tensor penultimate;  ///< of the layer before, not normalized: what Stable Diffusion 2 and XL are guided by
  Tensor pooled;       ///< at the end of the text, whose token is above all others: (batch, width), or projected
};

/// A layer of OpenAI's encoder: causal attention, then a feed-forward network with the sigmoid approximation of gelu.
struct ClosedClipLayer {
  nn::Linear k_proj, v_proj, q_proj, out_proj;
  nn::LayerNorm layer_norm1;
  nn::Linear fc1, fc2;
  nn::LayerNorm layer_norm2;
  int64_t heads;
  explicit ClosedClipLayer(const ClipTextOptions& o);
  Tensor operator()(const Tensor& x) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// OpenAI's text encoder. In files its names begin with "text_model.": `get_state_dict(model, "text_model.")`.
struct ClosedClipText {
  nn::Embedding token_embedding, position_embedding;
  std::vector<ClosedClipLayer> layers;
  nn::LayerNorm final_layer_norm;
  /// Makes the network with random weights. ValueError for no layers, and unless heads divide the width.
  explicit ClosedClipText(const ClipTextOptions& o = {});
  /// `pooled` is not projected. Throws ShapeError for tokens of other than two axes, and for too many.
  ClipText operator()(const Tensor& tokens) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// A layer of OpenCLIP's encoders.
struct OpenClipLayer {
  nn::LayerNorm ln_1;
  nn::MultiheadAttention attn;
  nn::LayerNorm ln_2;
  nn::Linear c_fc, c_proj;
  OpenClipLayer(int64_t width, int64_t heads);
  Tensor operator()(const Tensor& x, bool causal) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// OpenCLIP's text encoder; that of ViT-H/14, which Stable Diffusion 2 uses, has {.width = 1024, .layers = 24, .heads =
/// 16, .projection = 1024}, that of bigG, which XL uses, {.width = 1280, .layers = 32, .heads = 20, .projection =
/// 1280}.
struct OpenClipText {
  nn::Embedding token_embedding;
  Tensor positional_embedding;  ///< (positions, width)
  std::vector<OpenClipLayer> layers;
  nn::LayerNorm ln_final;
  Tensor text_projection;  ///< (width, projection)
  /// Makes the network with random weights. ValueError for no layers, and unless heads divide the width.
  explicit OpenClipText(const ClipTextOptions& o);
  /// `pooled` is projected. Throws ShapeError for tokens of other than two axes, and for too many.
  ClipText operator()(const Tensor& tokens) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// OpenCLIP's image encoder, a vision transformer: images (batch, 3, size, size) -> (batch, projection).
struct OpenClipImage {
  nn::Conv2d conv1;
  Tensor class_embedding, positional_embedding;  ///< (width), (1 + patches, width)
  nn::LayerNorm ln_pre;
  std::vector<OpenClipLayer> layers;
  nn::LayerNorm ln_post;
  Tensor proj;  ///< (width, projection)
  /// Makes the network with random weights. ValueError unless heads divide the width and patches the image.
  explicit OpenClipImage(const ClipImageOptions& o = {});
  /// Throws ShapeError for images of another size.
  Tensor operator()(const Tensor& images) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Both encoders: how well images and texts fit together.
struct OpenClip {
  OpenClipImage visual;
  OpenClipText text;
  Tensor logit_scale;  ///< scalar: the logarithm of what cosines are multiplied by
  /// Makes the network with random weights. ValueError as the encoders, and for vectors of different sizes.
  OpenClip(const ClipTextOptions& text_options, const ClipImageOptions& image_options);
  /// Returns logits (images, texts) of every pair. ShapeError as the encoders.
  Tensor operator()(const Tensor& images, const Tensor& tokens) const;
  /// Return vectors of length 1, (batch, projection).
  Tensor encode_images(const Tensor& images) const { return visual(images).normalize(2, -1); }
  Tensor encode_texts(const Tensor& tokens) const { return text(tokens).pooled.normalize(2, -1); }
  /// Returns the cosine of each image and its text, (batch,).
  Tensor score(const Tensor& images, const Tensor& tokens) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Scales images of bytes, or of floats from 0 to 1, (batch, 3, height, width), as both CLIPs expect them.
Tensor clip_normalized(const Tensor& images);

}  // namespace tg::models
