/// \file Forward passes of the autoencoder.
#include "models/autoencoder_kl.h"

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

nn::GroupNorm norm(int64_t groups, int64_t channels) { return {groups, channels, {.eps = 1e-6}}; }
nn::Conv2d conv3x3(int64_t in, int64_t out) { return {in, out, 3, {.padding = 1}}; }

const AutoencoderOptions& checked(const AutoencoderOptions& o) {
  TG_CHECK(ValueError, !o.multipliers.empty(), "[AutoencoderKL] got no levels, expected a multiplier for each");
  for (const int64_t m : o.multipliers)
    TG_CHECK(ValueError, o.groups > 0 && m > 0 && o.channels * m % o.groups == 0, "[AutoencoderKL] got ",
             o.channels * m, " channels, which ", o.groups, " groups do not divide");
  return o;
}

int64_t last_channels(const AutoencoderOptions& o) { return o.channels * o.multipliers.back(); }

}  // namespace

AutoencoderBlock::AutoencoderBlock(int64_t in, int64_t out, int64_t groups)
    : norm1(norm(groups, in)), conv1(conv3x3(in, out)), norm2(norm(groups, out)), conv2(conv3x3(out, out)) {
  if (in != out) nin_shortcut.emplace(in, out, 1);
}

Tensor AutoencoderBlock::operator()(const Tensor& x) const {
  const Tensor y = conv2(norm2(conv1(norm1(x).silu())).silu());
  return (nin_shortcut ? (*nin_shortcut)(x) : x) + y;
}

AutoencoderAttention::AutoencoderAttention(int64_t channels, int64_t groups)
    : norm(models::norm(groups, channels)),
      q(channels, channels, 1),
      k(channels, channels, 1),
      v(channels, channels, 1),
      proj_out(channels, channels, 1) {}

Tensor AutoencoderAttention::operator()(const Tensor& x) const {
  auto places = [](const Tensor& image) { return image.flatten(2).transpose(1, 2); };
  const Tensor y = norm(x);
  const Tensor attended = places(q(y)).scaled_dot_product_attention(places(k(y)), places(v(y)));
  return x + proj_out(attended.transpose(1, 2).reshape(x.shape()));
}

AutoencoderMiddle::AutoencoderMiddle(int64_t channels, int64_t groups)
    : block_1(channels, channels, groups), attn_1(channels, groups), block_2(channels, channels, groups) {}

void AutoencoderLevel::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("block, downsample.conv, upsample.conv", block, down, up);
}

AutoencoderEncoder::AutoencoderEncoder(const AutoencoderOptions& o)
    : conv_in(conv3x3(o.image_channels, o.channels)),
      mid(last_channels(o), o.groups),
      norm_out(norm(o.groups, last_channels(o))),
      conv_out(conv3x3(last_channels(o), 2 * o.latent_channels)) {
  int64_t channels = o.channels;
  for (const int64_t m : o.multipliers) {
    AutoencoderLevel& level = down.emplace_back();
    for (int64_t i = 0; i < o.res_blocks; i++) {
      level.block.emplace_back(channels, o.channels * m, o.groups);
      channels = o.channels * m;
    }
    if (down.size() < o.multipliers.size()) level.down.emplace(channels, channels, 3, nn::Conv2dOptions{.stride = 2});
  }
}

Tensor AutoencoderEncoder::operator()(const Tensor& images) const {
  Tensor x = conv_in(images);
  for (const AutoencoderLevel& level : down) {
    for (const AutoencoderBlock& block : level.block) x = block(x);
    if (level.down) x = (*level.down)(x.pad(Ints{0, 1, 0, 1}));
  }
  return conv_out(norm_out(mid(x)).silu());
}

AutoencoderDecoder::AutoencoderDecoder(const AutoencoderOptions& o)
    : conv_in(conv3x3(o.latent_channels, last_channels(o))),
      mid(last_channels(o), o.groups),
      up(o.multipliers.size()),
      norm_out(norm(o.groups, o.channels * o.multipliers[0])),
      conv_out(conv3x3(o.channels * o.multipliers[0], o.image_channels)) {
  int64_t channels = last_channels(o);
  for (size_t i = up.size(); i-- > 0;) {
    for (int64_t block = 0; block <= o.res_blocks; block++) {
      up[i].block.emplace_back(channels, o.channels * o.multipliers[i], o.groups);
      channels = o.channels * o.multipliers[i];
    }
    if (i > 0) up[i].up.emplace(conv3x3(channels, channels));
  }
}

Tensor AutoencoderDecoder::operator()(const Tensor& latents) const {
  Tensor x = mid(conv_in(latents));
  for (size_t i = up.size(); i-- > 0;) {
    for (const AutoencoderBlock& block : up[i].block) x = block(x);
    if (!up[i].up) continue;
    x = (*up[i].up)(x.interpolate(Ints{2 * x.shape(2), 2 * x.shape(3)}, Interpolation::kNearest));
  }
  return conv_out(norm_out(x).silu());
}

AutoencoderKL::AutoencoderKL(const AutoencoderOptions& o)
    : encoder(checked(o)),
      decoder(o),
      quant_conv(2 * o.latent_channels, 2 * o.latent_channels, 1),
      post_quant_conv(o.latent_channels, o.latent_channels, 1) {}

AutoencoderKL::Latents AutoencoderKL::encode(const Tensor& images) const {
  const int64_t unit = int64_t(1) << (encoder.down.size() - 1);
  TG_CHECK(ShapeError, images.ndim() == 4 && images.shape(2) % unit == 0 && images.shape(3) % unit == 0,
           "[AutoencoderKL] got images ", images.shape(),
           ", expected (batch, channels, height, width) in multiples of ", unit);
  const Tensors parts = quant_conv(encoder(images)).chunk(2, 1);
  return {parts[0], parts[1].clamp(Tensor(-30), Tensor(20))};
}

Tensor AutoencoderKL::Latents::sample() const { return mean + (log_variance / 2).exp() * mean.randn_like(); }

Tensor AutoencoderKL::Latents::divergence() const {
  return (mean.square() + log_variance.exp() - 1 - log_variance).sum({1, 2, 3}) / 2;
}

Tensor image_bytes(const Tensor& images) {
  const Tensor unit = ((images.cast(dtypes::float32) + 1) / 2).clamp(Tensor(0), Tensor(1));
  return (unit * 255).cast(dtypes::uint8).permute(0, 2, 3, 1);
}

}  // namespace tg::models
