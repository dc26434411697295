/// \file Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", arXiv 1512.00567),
/// with torchvision's names of weights, and the variant whose activations the Frechet inception distance compares
/// (Heusel et al., arXiv 1706.08500).
#pragma once
#include <optional>
#include <utility>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// A convolution without bias, batch norm and ReLU.
struct BasicConv2d {
  nn::Conv2d conv;
  nn::BatchNorm bn;
  BasicConv2d(int64_t in, int64_t out, const Ints& kernel, const Ints& padding = 0, int64_t stride = 1);
  Tensor operator()(const Tensor& x) const { return bn(conv(x)).relu(); }
  TG_STATE(conv, bn)
};

/// How a block pools the neighbourhood of each pixel: the mean with the zeros around the image or without them, or the
/// maximum.
enum class InceptionPool : uint8_t { kMean, kMeanInside, kMax };

// Blocks: images (batch, in, height, width) -> the results of their branches, joined along the channels.

/// Branches of 1x1, 5x5 and two 3x3 convolutions, and a pool: 224 + pool_features channels.
struct InceptionA {
  BasicConv2d branch1x1;
  BasicConv2d branch5x5_1, branch5x5_2;
  BasicConv2d branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3;
  BasicConv2d branch_pool;
  InceptionPool pool;
  InceptionA(int64_t in, int64_t pool_features, InceptionPool p = InceptionPool::kMean);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(branch1x1, branch5x5_1, branch5x5_2, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3, branch_pool)
};
/// Branches that halve the image: 480 + in channels.
struct InceptionB {
  BasicConv2d branch3x3;
  BasicConv2d branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3;
  explicit InceptionB(int64_t in);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(branch3x3, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3)
};
/// Branches of convolutions along rows and columns, of `between` channels inside: 768 channels.
struct InceptionC {
  BasicConv2d branch1x1;
  BasicConv2d branch7x7_1, branch7x7_2, branch7x7_3;
  BasicConv2d branch7x7dbl_1, branch7x7dbl_2, branch7x7dbl_3, branch7x7dbl_4, branch7x7dbl_5;
  BasicConv2d branch_pool;
  InceptionPool pool;
  InceptionC(int64_t in, int64_t between, InceptionPool p = InceptionPool::kMean);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(branch1x1, branch7x7_1, branch7x7_2, branch7x7_3, branch7x7dbl_1, branch7x7dbl_2, branch7x7dbl_3,
           branch7x7dbl_4, branch7x7dbl_5, branch_pool)
};
/// Branches that halve the image: 512 + in channels.
struct InceptionD {
  BasicConv2d branch3x3_1, branch3x3_2;
  BasicConv2d branch7x7x3_1, branch7x7x3_2, branch7x7x3_3, branch7x7x3_4;
  explicit InceptionD(int64_t in);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(branch3x3_1, branch3x3_2, branch7x7x3_1, branch7x7x3_2, branch7x7x3_3, branch7x7x3_4)
};
/// Branches that end in a convolution along rows beside one along columns: 2048 channels.
struct InceptionE {
  BasicConv2d branch1x1;
  BasicConv2d branch3x3_1, branch3x3_2a, branch3x3_2b;
  BasicConv2d branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3a, branch3x3dbl_3b;
  BasicConv2d branch_pool;
  InceptionPool pool;
  explicit InceptionE(int64_t in, InceptionPool p = InceptionPool::kMean);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(branch1x1, branch3x3_1, branch3x3_2a, branch3x3_2b, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3a,
           branch3x3dbl_3b, branch_pool)
};

/// A second classifier, behind the middle of the network, whose loss is added in training: (batch, in, height, width),
/// 17 pixels high and wide at least -> (batch, classes).
struct InceptionAux {
  BasicConv2d conv0, conv1;
  nn::Linear fc;
  InceptionAux(int64_t in, int64_t classes);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(conv0, conv1, fc)
};

/// The convolutions of Inception v3: images (batch, 3, height, width), 75 pixels high and wide at least, 299 as
/// published -> (batch, 2048, height / 32, width / 32).
struct InceptionTrunk {
  BasicConv2d Conv2d_1a_3x3, Conv2d_2a_3x3, Conv2d_2b_3x3, Conv2d_3b_1x1, Conv2d_4a_3x3;
  InceptionA Mixed_5b, Mixed_5c, Mixed_5d;
  InceptionB Mixed_6a;
  std::array<InceptionC, 4> Mixed_6bcde;
  InceptionD Mixed_7a;
  InceptionE Mixed_7b, Mixed_7c;
  explicit InceptionTrunk(bool fid);
  /// Returns the channels behind Mixed_6e, which InceptionAux reads.
  Tensor middle(const Tensor& images) const;
  /// Returns the channels behind Mixed_7c, of what middle() returns.
  Tensor end(const Tensor& middle) const;
  void visit_state(nn::StateVisitor& visitor) const;
};

struct Inception3Options {
  int64_t classes = 1000;
  bool aux_logits = true;        ///< has the second classifier, as published files do
  bool transform_input = false;  ///< images are normalized with ImageNet's means, the weights expect -1 to 1
  double dropout = 0.5;          ///< before the classifier, in training mode
};

/// Inception v3: images (batch, 3, height, width) -> (batch, classes) logits.
struct Inception3 {
  InceptionTrunk trunk;
  std::optional<InceptionAux> aux;
  nn::Linear fc;
  Inception3Options options;
  /// Makes the network with random weights.
  explicit Inception3(const Inception3Options& o = {});
  Tensor operator()(const Tensor& images) const;
  /// Returns the logits of both classifiers; ValueError for a network without the second one.
  std::pair<Tensor, Tensor> with_aux(const Tensor& images) const;
  void visit_state(nn::StateVisitor& visitor) const;

 private:
  Tensor middle(const Tensor& images) const;
  Tensor logits(const Tensor& middle) const;
};

/// The network of the Frechet inception distance: images (batch, 3, height, width) of values from 0 to 1, resized to
/// `size` -> (batch, 2048, 1, 1) activations.
struct FidInceptionV3 {
  InceptionTrunk trunk{true};
  int64_t size;
  explicit FidInceptionV3(int64_t image_size = 299) : size(image_size) {}
  Tensor operator()(const Tensor& images) const;
  void visit_state(nn::StateVisitor& visitor) const { trunk.visit_state(visitor); }
};

/// Returns the tensors of the published file (pt_inception-2015-12-05-6726825d.pth) without its classifier, which the
/// distance does not need.
nn::StateDict fid_inception_weights(const nn::StateDict& file);

}  // namespace tg::models
