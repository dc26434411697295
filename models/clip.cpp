/// \file Forward passes of CLIP, and names of its weights.
#include "models/clip.h"

#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/nn/transforms.h"

namespace tg::models {
namespace {

void check_text(const char* name, const ClipTextOptions& o) {
  TG_CHECK(ValueError, o.layers > 0, "[", name, "] got ", o.layers, " layers, expected at least 1");
  TG_CHECK(ValueError, o.heads > 0 && o.width % o.heads == 0, "[", name, "] got ", o.heads, " heads for width ",
           o.width, ", expected a divisor");
}

/// Returns the embeddings of tokens and of their places.
Tensor embedded(const char* name, const Tensor& tokens, const nn::Embedding& embedding, const Tensor& positions) {
  TG_CHECK(ShapeError, tokens.ndim() == 2 && tokens.shape(1) <= positions.shape(0), "[", name, "] got tokens ",
           tokens.shape(), ", expected (batch, time) of at most ", positions.shape(0));
  return embedding(tokens) + positions[Slice(0, tokens.shape(1))];
}

/// Returns the row of each batch that belongs to the greatest token.
Tensor row_of_end(const Tensor& x, const Tensor& tokens) {
  const Tensor at = tokens.argmax(-1).reshape(-1, 1, 1);
  return x.gather(1, at.expand(-1, 1, x.shape(2))).squeeze(1);
}

Tensor weight(const Shape& shape) { return Tensor::normal(shape, {.std = 0.02}).is_param_(); }

}  // namespace

ClosedClipLayer::ClosedClipLayer(const ClipTextOptions& o)
    : k_proj(o.width, o.width),
      v_proj(o.width, o.width),
      q_proj(o.width, o.width),
      out_proj(o.width, o.width),
      layer_norm1(o.width),
      fc1(o.width, 4 * o.width),
      fc2(4 * o.width, o.width),
      layer_norm2(o.width),
      heads(o.heads) {}

Tensor ClosedClipLayer::operator()(const Tensor& x) const {
  auto split = [&](const Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const Tensor a = layer_norm1(x);
  const Tensor attended =
      split(q_proj(a)).scaled_dot_product_attention(split(k_proj(a)), split(v_proj(a)), {.is_causal = true});
  const Tensor y = x + out_proj(attended.transpose(1, 2).flatten(2));
  return y + fc2(fc1(layer_norm2(y)).quick_gelu());
}

void ClosedClipLayer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("self_attn.k_proj, self_attn.v_proj, self_attn.q_proj, self_attn.out_proj", k_proj, v_proj, q_proj,
                  out_proj);
  visitor.members("layer_norm1, mlp.fc1, mlp.fc2, layer_norm2", layer_norm1, fc1, fc2, layer_norm2);
}

ClosedClipText::ClosedClipText(const ClipTextOptions& o)
    : token_embedding(o.vocab_size, o.width), position_embedding(o.positions, o.width), final_layer_norm(o.width) {
  check_text("ClosedClipText", o);
  for (int64_t i = 0; i < o.layers; i++) layers.emplace_back(o);
}

ClipText ClosedClipText::operator()(const Tensor& tokens) const {
  Tensor x = embedded("ClosedClipText", tokens, token_embedding, position_embedding.weight), before;
  for (const ClosedClipLayer& layer : layers) {
    before = x;
    x = layer(x);
  }
  const Tensor hidden = final_layer_norm(x);
  return {hidden, before, row_of_end(hidden, tokens)};
}

void ClosedClipText::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("embeddings.token_embedding, embeddings.position_embedding, encoder.layers, final_layer_norm",
                  token_embedding, position_embedding, layers, final_layer_norm);
}

OpenClipLayer::OpenClipLayer(int64_t width, int64_t heads)
    : ln_1(width), attn(width, heads), ln_2(width), c_fc(width, 4 * width), c_proj(4 * width, width) {}

Tensor OpenClipLayer::operator()(const Tensor& x, bool causal) const {
  const Tensor y = x + attn(ln_1(x), {.causal = causal});
  return y + c_proj(c_fc(ln_2(y)).gelu(false));
}

void OpenClipLayer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("ln_1, attn, ln_2, mlp.c_fc, mlp.c_proj", ln_1, attn, ln_2, c_fc, c_proj);
}

OpenClipText::OpenClipText(const ClipTextOptions& o)
    : token_embedding(o.vocab_size, o.width),
      positional_embedding(weight({o.positions, o.width})),
      ln_final(o.width),
      text_projection(weight({o.width, o.projection})) {
  check_text("OpenClipText", o);
  for (int64_t i = 0; i < o.layers; i++) layers.emplace_back(o.width, o.heads);
}

ClipText OpenClipText::operator()(const Tensor& tokens) const {
  Tensor x = embedded("OpenClipText", tokens, token_embedding, positional_embedding), before;
  for (const OpenClipLayer& layer : layers) {
    before = x;
    x = layer(x, true);
  }
  const Tensor hidden = ln_final(x);
  return {hidden, before, row_of_end(hidden, tokens).dot(text_projection)};
}

void OpenClipText::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("token_embedding, positional_embedding, transformer.resblocks, ln_final, text_projection",
                  token_embedding, positional_embedding, layers, ln_final, text_projection);
}

OpenClipImage::OpenClipImage(const ClipImageOptions& o)
    : conv1(3, o.width, o.patch_size, {.stride = o.patch_size, .bias = false}),
      class_embedding(weight({o.width})),
      ln_pre(o.width),
      ln_post(o.width),
      proj(weight({o.width, o.projection})) {
  TG_CHECK(ValueError, o.heads > 0 && o.width % o.heads == 0, "[OpenClipImage] got ", o.heads, " heads for width ",
           o.width, ", expected a divisor");
  TG_CHECK(ValueError, o.patch_size > 0 && o.image_size % o.patch_size == 0, "[OpenClipImage] got patches of ",
           o.patch_size, " for images of ", o.image_size, ", expected a divisor");
  const int64_t side = o.image_size / o.patch_size;
  positional_embedding = weight({1 + side * side, o.width});
  for (int64_t i = 0; i < o.layers; i++) layers.emplace_back(o.width, o.heads);
}

Tensor OpenClipImage::operator()(const Tensor& images) const {
  const Tensor patches = conv1(images).flatten(2).transpose(1, 2);
  TG_CHECK(ShapeError, patches.shape(1) + 1 == positional_embedding.shape(0), "[OpenClipImage] got images ",
           images.shape(), ", expected ", positional_embedding.shape(0) - 1, " patches of ", conv1.weight.shape(2));
  const Tensor first = class_embedding.reshape(1, 1, -1).expand(images.shape(0), 1, -1);
  Tensor x = ln_pre(first.cat(patches, 1) + positional_embedding);
  for (const OpenClipLayer& layer : layers) x = layer(x, false);
  return ln_post(x(Slice(), 0)).dot(proj);
}

void OpenClipImage::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("conv1, class_embedding, positional_embedding, ln_pre, transformer.resblocks, ln_post, proj", conv1,
                  class_embedding, positional_embedding, ln_pre, layers, ln_post, proj);
}

OpenClip::OpenClip(const ClipTextOptions& text_options, const ClipImageOptions& image_options)
    : visual(image_options), text(text_options), logit_scale(Tensor::full({}, std::log(1 / 0.07)).is_param_()) {
  TG_CHECK(ValueError, text_options.projection == image_options.projection, "[OpenClip] got vectors of ",
           text_options.projection, " for texts and of ", image_options.projection, " for images, expected one size");
}

Tensor OpenClip::operator()(const Tensor& images, const Tensor& tokens) const {
  return encode_images(images).dot(encode_texts(tokens).T()) * logit_scale.exp();
}

Tensor OpenClip::score(const Tensor& images, const Tensor& tokens) const {
  return (encode_images(images) * encode_texts(tokens)).sum(-1);
}

void OpenClip::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("visual, logit_scale", visual, logit_scale);
  text.visit_state(visitor);
}

Tensor clip_normalized(const Tensor& images) {
  return nn::transforms::normalize(images, {0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711});
}

}  // namespace tg::models
