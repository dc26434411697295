/// \file Forward pass of ViT, and the names of its published files.
#include "models/vit.h"

#include <array>
#include <string>
#include <string_view>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// How an array lies in a file.
enum class Layout : uint8_t {
  kSame,
  kKernel,   ///< (height, width, in, out)
  kToHeads,  ///< (in, heads, size of a head), or (heads, size of a head)
  kOfHeads   ///< (heads, size of a head, out)
};
struct Name {
  std::string_view file, ours;
  Layout layout = Layout::kSame;
};

constexpr std::array<Name, 8> kOutside{{{"embedding/kernel", "embedding.0", Layout::kKernel},
                                        {"embedding/bias", "embedding.1"},
                                        {"cls", "cls"},
                                        {"head/kernel", "head.0"},
                                        {"head/bias", "head.1"},
                                        {"Transformer/posembed_input/pos_embedding", "pos_embedding"},
                                        {"Transformer/encoder_norm/scale", "encoder_norm.0"},
                                        {"Transformer/encoder_norm/bias", "encoder_norm.1"}}};
constexpr std::array<Name, 16> kInBlock{{{"MultiHeadDotProductAttention_1/query/kernel", "query.0", Layout::kToHeads},
                                         {"MultiHeadDotProductAttention_1/query/bias", "query.1", Layout::kToHeads},
                                         {"MultiHeadDotProductAttention_1/key/kernel", "key.0", Layout::kToHeads},
                                         {"MultiHeadDotProductAttention_1/key/bias", "key.1", Layout::kToHeads},
                                         {"MultiHeadDotProductAttention_1/value/kernel", "value.0", Layout::kToHeads},
                                         {"MultiHeadDotProductAttention_1/value/bias", "value.1", Layout::kToHeads},
                                         {"MultiHeadDotProductAttention_1/out/kernel", "out.0", Layout::kOfHeads},
                                         {"MultiHeadDotProductAttention_1/out/bias", "out.1"},
                                         {"MlpBlock_3/Dense_0/kernel", "ff1.0"},
                                         {"MlpBlock_3/Dense_0/bias", "ff1.1"},
                                         {"MlpBlock_3/Dense_1/kernel", "ff2.0"},
                                         {"MlpBlock_3/Dense_1/bias", "ff2.1"},
                                         {"LayerNorm_0/scale", "ln1.0"},
                                         {"LayerNorm_0/bias", "ln1.1"},
                                         {"LayerNorm_2/scale", "ln2.0"},
                                         {"LayerNorm_2/bias", "ln2.1"}}};

Tensor laid_out(const Tensor& t, Layout layout) {
  switch (layout) {
    case Layout::kKernel: return t.permute(3, 2, 0, 1);
    case Layout::kToHeads: return t.flatten(-2);
    case Layout::kOfHeads: return t.flatten(0, 1);
    default: return t;
  }
}

std::pair<std::string, Tensor> renamed(std::string_view name, const Tensor& t) {
  for (const Name& n : kOutside)
    if (n.file == name) return {std::string(n.ours), laid_out(t, n.layout)};
  constexpr std::string_view prefix = "Transformer/encoderblock_";
  const size_t slash = name.find('/', prefix.size());
  if (!name.starts_with(prefix) || slash == std::string_view::npos) return {std::string(name), t};
  for (const Name& n : kInBlock)
    if (n.file == name.substr(slash + 1))
      return {str("tbs.", name.substr(prefix.size(), slash - prefix.size()), ".", n.ours), laid_out(t, n.layout)};
  return {std::string(name), t};
}

int64_t patches(const ViTOptions& o) {
  TG_CHECK(ValueError, o.patch_size > 0 && o.image_size % o.patch_size == 0, "[ViT] got patches of size ", o.patch_size,
           " for images of size ", o.image_size, ", expected a divisor of it");
  const int64_t row = o.image_size / o.patch_size;
  return row * row;
}

}  // namespace

ViT::ViT(const ViTOptions& o)
    : embedding(Tensor::uniform({o.embed_dim, 3, o.patch_size, o.patch_size}), Tensor::zeros({o.embed_dim})),
      cls(Tensor::ones({1, 1, o.embed_dim})),
      pos_embedding(Tensor::ones({1, 1 + patches(o), o.embed_dim})),
      encoder_norm(Tensor::uniform({o.embed_dim}), Tensor::zeros({o.embed_dim})),
      head(Tensor::uniform({o.embed_dim, o.classes}), Tensor::zeros({o.classes})),
      options(o) {
  for (int64_t i = 0; i < o.layers; i++)
    tbs.emplace_back(TransformerBlockOptions{.embed_dim = o.embed_dim,
                                             .num_heads = o.num_heads,
                                             .ff_dim = o.embed_dim * 4,
                                             .prenorm = true,
                                             .activation = [](const Tensor& x) { return x.gelu(); },
                                             .dropout = o.dropout,
                                             .eps = o.eps});
}

Tensor ViT::operator()(const Tensor& images) const {
  const int64_t size = options.image_size;
  TG_CHECK(ShapeError, images.ndim() == 4 && images.shape() == (Shape{images.shape(0), 3, size, size}), "[ViT] got ",
           images.shape(), ", expected (batch, 3, ", size, ", ", size, ")");
  const ConvOptions patch{.stride = options.patch_size};
  const Tensor elements = images.conv2d(embedding.first, embedding.second, patch).flatten(2).transpose(1, 2);
  Tensor x = cls.expand(images.shape(0), 1, -1).cat(elements, 1) + pos_embedding;
  for (const TransformerBlock& block : tbs) x = block(x);
  x = x(Slice(), 0).layernorm(-1, options.eps) * encoder_norm.first + encoder_norm.second;
  return x.linear(head.first, head.second);
}

nn::StateDict vit_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file) out.push_back(renamed(name, t));
  return out;
}

}  // namespace tg::models
