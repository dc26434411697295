/// \file Forward passes of Inception v3.
#include "models/inception.h"

#include <string>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

Tensor pooled(const Tensor& x, InceptionPool pool) {
  const PoolOptions o{
      .kernel_size = 3, .stride = 1, .padding = 1, .count_include_pad = pool != InceptionPool::kMeanInside};
  return pool == InceptionPool::kMax ? x.max_pool2d(o) : x.avg_pool2d(o);
}

Tensor halved(const Tensor& x) { return x.max_pool2d({.kernel_size = 3, .stride = 2}); }

}  // namespace

BasicConv2d::BasicConv2d(int64_t in, int64_t out, const Ints& kernel, const Ints& padding, int64_t stride)
    : conv(in, out, kernel.size() == 1 ? Ints{kernel[0], kernel[0]} : kernel,
           {.stride = stride, .padding = padding, .bias = false}),
      bn(out, {.eps = 1e-3}) {}

InceptionA::InceptionA(int64_t in, int64_t pool_features, InceptionPool p)
    : branch1x1(in, 64, 1),
      branch5x5_1(in, 48, 1),
      branch5x5_2(48, 64, 5, 2),
      branch3x3dbl_1(in, 64, 1),
      branch3x3dbl_2(64, 96, 3, 1),
      branch3x3dbl_3(96, 96, 3, 1),
      branch_pool(in, pool_features, 1),
      pool(p) {}

Tensor InceptionA::operator()(const Tensor& x) const {
  return Tensor::cat({branch1x1(x), branch5x5_2(branch5x5_1(x)), branch3x3dbl_3(branch3x3dbl_2(branch3x3dbl_1(x))),
                      branch_pool(pooled(x, pool))},
                     1);
}

InceptionB::InceptionB(int64_t in)
    : branch3x3(in, 384, 3, 0, 2),
      branch3x3dbl_1(in, 64, 1),
      branch3x3dbl_2(64, 96, 3, 1),
      branch3x3dbl_3(96, 96, 3, 0, 2) {}

Tensor InceptionB::operator()(const Tensor& x) const {
  return Tensor::cat({branch3x3(x), branch3x3dbl_3(branch3x3dbl_2(branch3x3dbl_1(x))), halved(x)}, 1);
}

InceptionC::InceptionC(int64_t in, int64_t between, InceptionPool p)
    : branch1x1(in, 192, 1),
      branch7x7_1(in, between, 1),
      branch7x7_2(between, between, {1, 7}, {0, 3}),
      branch7x7_3(between, 192, {7, 1}, {3, 0}),
      branch7x7dbl_1(in, between, 1),
      branch7x7dbl_2(between, between, {7, 1}, {3, 0}),
      branch7x7dbl_3(between, between, {1, 7}, {0, 3}),
      branch7x7dbl_4(between, between, {7, 1}, {3, 0}),
      branch7x7dbl_5(between, 192, {1, 7}, {0, 3}),
      branch_pool(in, 192, 1),
      pool(p) {}

Tensor InceptionC::operator()(const Tensor& x) const {
  const Tensor once = branch7x7_3(branch7x7_2(branch7x7_1(x)));
  const Tensor twice = branch7x7dbl_5(branch7x7dbl_4(branch7x7dbl_3(branch7x7dbl_2(branch7x7dbl_1(x)))));
  return Tensor::cat({branch1x1(x), once, twice, branch_pool(pooled(x, pool))}, 1);
}

InceptionD::InceptionD(int64_t in)
    : branch3x3_1(in, 192, 1),
      branch3x3_2(192, 320, 3, 0, 2),
      branch7x7x3_1(in, 192, 1),
      branch7x7x3_2(192, 192, {1, 7}, {0, 3}),
      branch7x7x3_3(192, 192, {7, 1}, {3, 0}),
      branch7x7x3_4(192, 192, 3, 0, 2) {}

Tensor InceptionD::operator()(const Tensor& x) const {
  const Tensor tall = branch7x7x3_4(branch7x7x3_3(branch7x7x3_2(branch7x7x3_1(x))));
  return Tensor::cat({branch3x3_2(branch3x3_1(x)), tall, halved(x)}, 1);
}

InceptionE::InceptionE(int64_t in, InceptionPool p)
    : branch1x1(in, 320, 1),
      branch3x3_1(in, 384, 1),
      branch3x3_2a(384, 384, {1, 3}, {0, 1}),
      branch3x3_2b(384, 384, {3, 1}, {1, 0}),
      branch3x3dbl_1(in, 448, 1),
      branch3x3dbl_2(448, 384, 3, 1),
      branch3x3dbl_3a(384, 384, {1, 3}, {0, 1}),
      branch3x3dbl_3b(384, 384, {3, 1}, {1, 0}),
      branch_pool(in, 192, 1),
      pool(p) {}

Tensor InceptionE::operator()(const Tensor& x) const {
  const Tensor once = branch3x3_1(x);
  const Tensor twice = branch3x3dbl_2(branch3x3dbl_1(x));
  return Tensor::cat({branch1x1(x), branch3x3_2a(once), branch3x3_2b(once), branch3x3dbl_3a(twice),
                      branch3x3dbl_3b(twice), branch_pool(pooled(x, pool))},
                     1);
}

InceptionAux::InceptionAux(int64_t in, int64_t classes) : conv0(in, 128, 1), conv1(128, 768, 5), fc(768, classes) {}

Tensor InceptionAux::operator()(const Tensor& x) const {
  return fc(conv1(conv0(x.avg_pool2d({.kernel_size = 5, .stride = 3}))).mean({2, 3}));
}

InceptionTrunk::InceptionTrunk(bool fid)
    : Conv2d_1a_3x3(3, 32, 3, 0, 2),
      Conv2d_2a_3x3(32, 32, 3),
      Conv2d_2b_3x3(32, 64, 3, 1),
      Conv2d_3b_1x1(64, 80, 1),
      Conv2d_4a_3x3(80, 192, 3),
      Mixed_5b(192, 32, fid ? InceptionPool::kMeanInside : InceptionPool::kMean),
      Mixed_5c(256, 64, Mixed_5b.pool),
      Mixed_5d(288, 64, Mixed_5b.pool),
      Mixed_6a(288),
      Mixed_6bcde{InceptionC(768, 128, Mixed_5b.pool), InceptionC(768, 160, Mixed_5b.pool),
                  InceptionC(768, 160, Mixed_5b.pool), InceptionC(768, 192, Mixed_5b.pool)},
      Mixed_7a(768),
      Mixed_7b(1280, Mixed_5b.pool),
      Mixed_7c(2048, fid ? InceptionPool::kMax : InceptionPool::kMean) {}

Tensor InceptionTrunk::middle(const Tensor& images) const {
  Tensor x = halved(Conv2d_2b_3x3(Conv2d_2a_3x3(Conv2d_1a_3x3(images))));
  x = halved(Conv2d_4a_3x3(Conv2d_3b_1x1(x)));
  x = Mixed_6a(Mixed_5d(Mixed_5c(Mixed_5b(x))));
  for (const InceptionC& block : Mixed_6bcde) x = block(x);
  return x;
}

Tensor InceptionTrunk::end(const Tensor& middle) const { return Mixed_7c(Mixed_7b(Mixed_7a(middle))); }

void InceptionTrunk::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("Conv2d_1a_3x3, Conv2d_2a_3x3, Conv2d_2b_3x3, Conv2d_3b_1x1, Conv2d_4a_3x3", Conv2d_1a_3x3,
                  Conv2d_2a_3x3, Conv2d_2b_3x3, Conv2d_3b_1x1, Conv2d_4a_3x3);
  visitor.members("Mixed_5b, Mixed_5c, Mixed_5d, Mixed_6a", Mixed_5b, Mixed_5c, Mixed_5d, Mixed_6a);
  for (size_t i = 0; i < Mixed_6bcde.size(); i++) visitor.member(std::string("Mixed_6") + "bcde"[i], Mixed_6bcde[i]);
  visitor.members("Mixed_7a, Mixed_7b, Mixed_7c", Mixed_7a, Mixed_7b, Mixed_7c);
}

Inception3::Inception3(const Inception3Options& o) : trunk(false), fc(2048, o.classes), options(o) {
  if (o.aux_logits) aux.emplace(768, o.classes);
}

Tensor Inception3::middle(const Tensor& images) const {
  if (!options.transform_input) return trunk.middle(images);
  const auto channel = [](float r, float g, float b) { return Tensor({r, g, b}).reshape(1, 3, 1, 1); };
  const Tensor deviations = channel(0.229f, 0.224f, 0.225f), means = channel(0.485f, 0.456f, 0.406f);
  return trunk.middle((images * deviations + means) * 2 - 1);
}

Tensor Inception3::logits(const Tensor& middle) const {
  return fc(trunk.end(middle).mean({2, 3}).dropout(options.dropout));
}

Tensor Inception3::operator()(const Tensor& images) const { return logits(middle(images)); }

std::pair<Tensor, Tensor> Inception3::with_aux(const Tensor& images) const {
  TG_CHECK(ValueError, aux, "[Inception3] a network made without aux_logits has no second classifier");
  const Tensor x = middle(images);
  return {logits(x), (*aux)(x)};
}

void Inception3::visit_state(nn::StateVisitor& visitor) const {
  trunk.visit_state(visitor);
  visitor.member("AuxLogits", aux);
  visitor.member("fc", fc);
}

Tensor FidInceptionV3::operator()(const Tensor& images) const {
  const Tensor x = images.interpolate({size, size}) * 2 - 1;
  return trunk.end(trunk.middle(x)).mean({2, 3}, true);
}

nn::StateDict fid_inception_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& entry : file)
    if (!entry.first.starts_with("fc.")) out.push_back(entry);
  return out;
}

}  // namespace tg::models
