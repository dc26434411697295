/// \file Forward pass of the U-Net.
#include "models/unet.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride = 1) {
  return {in, out, 3, {.stride = stride, .padding = 1}};
}

Tensor twice_as_large(const Tensor& x) {
  return x.interpolate(Ints{2 * x.shape(2), 2 * x.shape(3)}, Interpolation::kNearest);
}

int64_t heads_of(int64_t channels, const UNetOptions& o) { return o.heads > 0 ? o.heads : channels / o.head_dim; }

/// Returns the options, which fit together.
const UNetOptions& checked(const UNetOptions& o) {
  TG_CHECK(ValueError, !o.multipliers.empty() && o.multipliers.size() == o.depths.size(), "[UNet] got ",
           o.multipliers.size(), " multipliers and ", o.depths.size(), " depths, expected one of each for every level");
  TG_CHECK(ValueError, (o.heads > 0) != (o.head_dim > 0), "[UNet] got ", o.heads, " heads and head_dim ", o.head_dim,
           ", expected one of them");
  for (const int64_t m : o.multipliers) {
    const int64_t channels = m * o.channels, divisor = o.heads > 0 ? o.heads : o.head_dim;
    TG_CHECK(ValueError, channels > 0 && channels % divisor == 0, "[UNet] got ", channels, " channels, which ", divisor,
             o.heads > 0 ? " heads" : " values of a head", " do not divide");
    for (const int64_t groups : {o.groups, o.attention_groups})
      TG_CHECK(ValueError, groups > 0 && channels % groups == 0, "[UNet] got ", channels, " channels, which ", groups,
               " groups do not divide");
  }
  return o;
}

/// Adds the blocks of all levels to a network; the way up consumes what the way down leaves.
class Builder {
 public:
  explicit Builder(const UNetOptions& o) : o_(o), channels_(o.channels), left_{o.channels} {}

  std::vector<UNetBlock> down() {
    std::vector<UNetBlock> out;
    out.push_back({.first = conv3x3(o_.in_channels, channels_)});
    for (size_t level = 0; level < o_.multipliers.size(); level++) {
      for (int64_t i = 0; i < o_.res_blocks; i++) {
        out.push_back(block(level, 0));
        left_.push_back(channels_);
      }
      if (level + 1 == o_.multipliers.size()) break;
      out.push_back({.down = conv3x3(channels_, channels_, 2)});
      left_.push_back(channels_);
      smaller_ *= 2;
    }
    return out;
  }

  std::vector<UNetBlock> middle() const {
    std::vector<UNetBlock> out(3);
    out[0].res.emplace(channels_, channels_, o_);
    out[1].attention.emplace(channels_, o_.depths.back(), o_);
    out[2].res.emplace(channels_, channels_, o_);
    return out;
  }

  std::vector<UNetBlock> up() {
    std::vector<UNetBlock> out;
    for (size_t level = o_.multipliers.size(); level-- > 0;)
      for (int64_t i = 0; i <= o_.res_blocks; i++) {
        const int64_t beside = left_.back();
        left_.pop_back();
        out.push_back(block(level, beside));
        if (level == 0 || i < o_.res_blocks) continue;
        out.back().up = conv3x3(channels_, channels_);
        smaller_ /= 2;
      }
    return out;
  }

 private:
  UNetBlock block(size_t level, int64_t beside) {
    const int64_t in = std::exchange(channels_, o_.channels * o_.multipliers[level]) + beside;
    UNetBlock out;
    out.res.emplace(in, channels_, o_);
    if (std::find(o_.attention_at.begin(), o_.attention_at.end(), smaller_) != o_.attention_at.end())
      out.attention.emplace(channels_, o_.depths[level], o_);
    return out;
  }

  const UNetOptions& o_;
  int64_t channels_, smaller_ = 1;
  std::vector<int64_t> left_;  ///< channels of what each block of the way down hands to the way up
};

}  // namespace

UNetOptions sd1_unet() { return {}; }
UNetOptions sd2_unet() { return {.context = 1024, .heads = 0, .head_dim = 64, .linear = true}; }
UNetOptions sdxl_unet() {
  return {.multipliers = {1, 2, 4},
          .attention_at = {2, 4},
          .depths = {1, 2, 10},
          .context = 2048,
          .heads = 0,
          .head_dim = 64,
          .linear = true,
          .vector = 2816};
}
UNetOptions sdxl_refiner_unet() {
  return {.channels = 384,
          .attention_at = {2, 4},
          .depths = {4, 4, 4, 4},
          .context = 1280,
          .heads = 0,
          .head_dim = 64,
          .linear = true,
          .vector = 2560};
}

Tensor timestep_embedding(const Tensor& timesteps, int64_t dim, double max_period) {
  TG_CHECK(ValueError, dim > 0 && dim % 2 == 0, "[timestep_embedding] got dim ", dim, ", expected an even number");
  const Tensor places = Tensor::arange(dim / 2, {.dtype = dtypes::float32, .device = timesteps.device()});
  const Tensor rates = (places * (-std::log(max_period) / static_cast<double>(dim / 2))).exp();
  const Tensor angles = timesteps.cast(dtypes::float32).unsqueeze(1) * rates;
  return angles.cos().cat(angles.sin(), 1);
}

UNetResBlock::UNetResBlock(int64_t in, int64_t out, const UNetOptions& o)
    : in_norm(o.groups, in),
      in_conv(conv3x3(in, out)),
      emb(4 * o.channels, out),
      out_norm(o.groups, out),
      out_conv(conv3x3(out, out)) {
  if (in != out) skip_connection.emplace(in, out, 1);
}

Tensor UNetResBlock::operator()(const Tensor& x, const Tensor& embedding) const {
  const Tensor at_time = emb(embedding.silu()).unsqueeze(-1).unsqueeze(-1);
  const Tensor y = in_conv(in_norm(x).silu()) + at_time;
  return (skip_connection ? (*skip_connection)(x) : x) + out_conv(out_norm(y).silu());
}

void UNetResBlock::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("in_layers.0, in_layers.2, emb_layers.1, out_layers.0, out_layers.3, skip_connection", in_norm,
                  in_conv, emb, out_norm, out_conv, skip_connection);
}

CrossAttention::CrossAttention(int64_t dim, int64_t context, int64_t n)
    : to_q(dim, dim, false), to_k(context, dim, false), to_v(context, dim, false), to_out(dim, dim), heads(n) {}

Tensor CrossAttention::operator()(const Tensor& x, const Tensor& context) const {
  auto split = [&](const Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const Tensor attended = split(to_q(x)).scaled_dot_product_attention(split(to_k(context)), split(to_v(context)));
  return to_out(attended.transpose(1, 2).flatten(2));
}

void CrossAttention::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("to_q, to_k, to_v, to_out.0", to_q, to_k, to_v, to_out);
}

SpatialLayer::SpatialLayer(int64_t dim, int64_t context, int64_t heads)
    : attn1(dim, dim, heads),
      ff_in(dim, 8 * dim),
      ff_out(4 * dim, dim),
      attn2(dim, context, heads),
      norm1(dim),
      norm2(dim),
      norm3(dim) {}

Tensor SpatialLayer::operator()(const Tensor& x, const Tensor& context) const {
  const Tensor places = norm1(x), seen = x + attn1(places, places);
  const Tensor guided = seen + attn2(norm2(seen), context);
  const Tensors values_and_gates = ff_in(norm3(guided)).chunk(2, -1);
  return guided + ff_out(values_and_gates[0] * values_and_gates[1].gelu(false));
}

void SpatialLayer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("attn1, ff.net.0.proj, ff.net.2, attn2, norm1, norm2, norm3", attn1, ff_in, ff_out, attn2, norm1,
                  norm2, norm3);
}

SpatialTransformer::SpatialTransformer(int64_t channels, int64_t depth, const UNetOptions& o)
    : norm(o.attention_groups, channels, {.eps = 1e-6}) {
  if (o.linear) {
    linear_in.emplace(channels, channels);
    linear_out.emplace(channels, channels);
  } else {
    conv_in.emplace(channels, channels, 1);
    conv_out.emplace(channels, channels, 1);
  }
  for (int64_t i = 0; i < depth; i++) transformer_blocks.emplace_back(channels, o.context, heads_of(channels, o));
}

Tensor SpatialTransformer::operator()(const Tensor& x, const Tensor& context) const {
  auto places = [](const Tensor& image) { return image.flatten(2).transpose(1, 2); };
  auto image = [&](const Tensor& t) { return t.transpose(1, 2).reshape(x.shape()); };
  Tensor y = linear_in ? (*linear_in)(places(norm(x))) : places((*conv_in)(norm(x)));
  for (const SpatialLayer& layer : transformer_blocks) y = layer(y, context);
  return x + (linear_out ? image((*linear_out)(y)) : (*conv_out)(image(y)));
}

void SpatialTransformer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("norm, proj_in, proj_in, transformer_blocks, proj_out, proj_out", norm, linear_in, conv_in,
                  transformer_blocks, linear_out, conv_out);
}

Tensor UNetBlock::operator()(const Tensor& x, const Tensor& embedding, const Tensor& context) const {
  Tensor y = first ? (*first)(x) : x;
  if (res) y = (*res)(y, embedding);
  if (attention) y = (*attention)(y, context);
  if (down) y = (*down)(y);
  return up ? (*up)(twice_as_large(y)) : y;
}

void UNetBlock::visit_state(nn::StateVisitor& visitor) const {
  int i = 0;
  if (first) visitor.member(str(i++), *first);
  if (res) visitor.member(str(i++), *res);
  if (attention) visitor.member(str(i++), *attention);
  if (down) visitor.member(str(i++, ".op"), *down);
  if (up) visitor.member(str(i++, ".conv"), *up);
}

UNet::UNet(const UNetOptions& o)
    : time_in(checked(o).channels, 4 * o.channels),
      time_out(4 * o.channels, 4 * o.channels),
      out_norm(o.groups, o.channels * o.multipliers[0]),
      out_conv(conv3x3(o.channels * o.multipliers[0], o.out_channels)),
      options(o) {
  if (o.vector > 0) {
    label_in.emplace(o.vector, 4 * o.channels);
    label_out.emplace(4 * o.channels, 4 * o.channels);
  }
  Builder builder(options);
  input_blocks = builder.down();
  middle_block = builder.middle();
  output_blocks = builder.up();
}

Tensor UNet::operator()(const UNetInput& in) const {
  const int64_t unit = int64_t(1) << (options.multipliers.size() - 1);
  TG_CHECK(ShapeError, in.latents.ndim() == 4 && in.latents.shape(2) % unit == 0 && in.latents.shape(3) % unit == 0,
           "[UNet] got latents ", in.latents.shape(), ", expected (batch, channels, height, width) in multiples of ",
           unit);
  TG_CHECK(ShapeError, in.vector.defined() == label_in.has_value(), "[UNet] got ",
           in.vector.defined() ? "a vector" : "no vector", ", expected ", label_in ? "one" : "none");
  const DType type = time_in.weight.dtype();
  Tensor embedding = time_out(time_in(timestep_embedding(in.timesteps, options.channels).cast(type)).silu());
  if (label_in) embedding = embedding + (*label_out)((*label_in)(in.vector.cast(type)).silu());
  const Tensor context = in.context.cast(type);
  Tensor x = in.latents.cast(type);
  Tensors beside;
  for (const UNetBlock& block : input_blocks) beside.push_back(x = block(x, embedding, context));
  for (const UNetBlock& block : middle_block) x = block(x, embedding, context);
  for (const UNetBlock& block : output_blocks) {
    x = block(x.cat(beside.back(), 1), embedding, context);
    beside.pop_back();
  }
  return out_conv(out_norm(x).silu());
}

void UNet::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("time_embed.0, time_embed.2, label_emb.0.0, label_emb.0.2", time_in, time_out, label_in, label_out);
  visitor.member("input_blocks", input_blocks);
  // Blocks in the middle have one part each, and no number for it.
  visitor.members("middle_block.0, middle_block.1, middle_block.2", middle_block[0].res, middle_block[1].attention,
                  middle_block[2].res);
  visitor.members("output_blocks, out.0, out.2", output_blocks, out_norm, out_conv);
}

}  // namespace tg::models
