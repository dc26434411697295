/// \file Vision Transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv 2010.11929).
#pragma once
#include <vector>

#include "models/transformer.h"
#include "tinygrad/nn/nn.h"

namespace tg::models {

/// The sizes of a network; those of ViT-Ti/16 by default. ViT-B/16 has an embed_dim of 768 and 12 heads.
struct ViTOptions {
  int64_t layers = 12, embed_dim = 192, num_heads = 3;
  int64_t classes = 1000;
  int64_t image_size = 224, patch_size = 16;
  double dropout = 0.1;  ///< in training mode
  double eps = 1e-6;     ///< of the norms, as of the published weights; tinygrad's Python class has 1e-5
};

/// ViT: images (batch, 3, image_size, image_size) -> (batch, classes) logits.
struct ViT {
  Affine embedding;      ///< (embed_dim, 3, patch_size, patch_size), (embed_dim)
  Tensor cls;            ///< (1, 1, embed_dim): the element whose result is classified
  Tensor pos_embedding;  ///< (1, 1 + patches, embed_dim): added to the elements
  std::vector<TransformerBlock> tbs;
  Affine encoder_norm, head;
  ViTOptions options;
  /// Makes the network with random weights. ValueError unless the number of heads divides embed_dim and the size of a
  /// patch that of the image.
  explicit ViT(const ViTOptions& o = {});
  /// Throws ShapeError for images of another size.
  Tensor operator()(const Tensor& images) const;
  TG_STATE(embedding, cls, pos_embedding, tbs, encoder_norm, head)
};

/// Returns the arrays of a published file (nn::npz_load of Ti_16-i21k-300ep-....npz and its siblings) under the names
/// and with the shapes that the network has; others keep their names.
nn::StateDict vit_weights(const nn::StateDict& file);

}  // namespace tg::models
