/// \file Forward passes of ConvNeXt.
#include "models/convnext.h"

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

constexpr nn::LayerNormOptions kNorm{.eps = 1e-6};

struct Version {
  std::string_view name;
  std::array<int64_t, 4> depths, dims;
};
constexpr std::array<Version, 5> kVersions{{{"tiny", {3, 3, 9, 3}, {96, 192, 384, 768}},
                                            {"small", {3, 3, 27, 3}, {96, 192, 384, 768}},
                                            {"base", {3, 3, 27, 3}, {128, 256, 512, 1024}},
                                            {"large", {3, 3, 27, 3}, {192, 384, 768, 1536}},
                                            {"xlarge", {3, 3, 27, 3}, {256, 512, 1024, 2048}}}};

}  // namespace

ConvNeXtOptions convnext_options(std::string_view version) {
  for (const Version& v : kVersions)
    if (v.name == version) return {.depths = v.depths, .dims = v.dims};
  throw ValueError(str("[convnext_options] got \"", version, "\", expected tiny, small, base, large or xlarge"));
}

ConvNeXtBlock::ConvNeXtBlock(int64_t dim)
    : dwconv(dim, dim, 7, {.padding = 3, .groups = dim}),
      norm(dim, kNorm),
      pwconv1(dim, 4 * dim),
      pwconv2(4 * dim, dim),
      gamma(Tensor::ones({dim})) {}

Tensor ConvNeXtBlock::operator()(const Tensor& x) const {
  const Tensor channels_last = norm(dwconv(x).permute(0, 2, 3, 1));
  const Tensor mixed = pwconv2(pwconv1(channels_last).gelu(false));
  return x + (gamma * mixed).permute(0, 3, 1, 2);
}

ConvNeXtDownsample::ConvNeXtDownsample(int64_t in, int64_t out, int64_t stride, bool norm_before)
    : conv(in, out, stride, {.stride = stride}), norm(norm_before ? in : out, kNorm), norm_first(norm_before) {}

Tensor ConvNeXtDownsample::operator()(const Tensor& x) const { return norm_first ? conv(norm(x)) : norm(conv(x)); }

void ConvNeXtDownsample::visit_state(nn::StateVisitor& visitor) const {
  visitor.member(norm_first ? "1" : "0", conv);
  visitor.member(norm_first ? "0" : "1", norm);
}

ConvNeXt::ConvNeXt(const ConvNeXtOptions& o) : norm(o.dims.back(), kNorm), head(o.dims.back(), o.classes) {
  int64_t in = o.input_channels;
  for (size_t i = 0; i < o.dims.size(); i++) {
    downsample_layers.emplace_back(in, o.dims[i], i == 0 ? 4 : 2, i > 0);
    std::vector<ConvNeXtBlock>& stage = stages.emplace_back();
    for (int64_t k = 0; k < o.depths[i]; k++) stage.emplace_back(o.dims[i]);
    in = o.dims[i];
  }
}

Tensors ConvNeXt::features(const Tensor& images) const {
  Tensors out;
  Tensor x = images;
  for (size_t i = 0; i < stages.size(); i++) {
    x = downsample_layers[i](x);
    for (const ConvNeXtBlock& block : stages[i]) x = block(x);
    out.push_back(x);
  }
  return out;
}

Tensor ConvNeXt::operator()(const Tensor& images) const { return head(norm(features(images).back().mean({2, 3}))); }

}  // namespace tg::models
