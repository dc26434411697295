/// \file Whole sequences through the layers of a decoder.
#include "tinygrad/llm/adapted_model.h"

#include <algorithm>
#include <optional>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/decoder_network.h"

namespace tg::llm {

namespace {
constexpr int64_t kDefaultTime = 4096;  // of models that were trained for more
int64_t blocks_of(int64_t time) { return (time + kCacheBlock - 1) / kCacheBlock; }
}  // namespace

struct AdaptedModel::Impl {
  Impl(const io::GgufFile& file, const AdapterOptions& o, int64_t max_time, const std::string& device)
      : config(read_model_config(file)), adapters(o, device), time(max_time) {
    TG_CHECK(ValueError, !config.has_recurrent_layer(), "[adapters] ", config.architecture,
             " has recurrent layers, which cannot be differentiated");
    if (time == 0) time = std::min(config.trained_context, kDefaultTime);
    TG_CHECK(ValueError, time >= 1 && time <= kMaxTrainedContext, "[adapters] got max_time ", time, ", expected 1 to ",
             kMaxTrainedContext);
    network.emplace(Weights(file, config, device, &adapters), time, CacheOptions{0, blocks_of(time), dtypes::float32});
    TG_CHECK(ValueError, !adapters.state().empty(), "[adapters] no projection of ", config.architecture,
             " has the name of a target, such as attn_q, attn_v or ffn_down");
  }

  ModelConfig config;
  AdapterSet adapters;
  int64_t time;
  std::optional<DecoderNetwork> network;
};

AdaptedModel AdaptedModel::load(const std::filesystem::path& file, const AdapterOptions& o, int64_t max_time,
                                const std::string& device) {
  AdaptedModel m;
  m.impl_ = std::make_shared<const Impl>(io::GgufFile::open(file), o, max_time, device);
  return m;
}

const ModelConfig& AdaptedModel::config() const { return impl_->config; }
const nn::StateDict& AdaptedModel::adapters() const { return impl_->adapters.state(); }

Tensor AdaptedModel::logits(const Tensor& tokens) const {
  const Shape& shape = tokens.shape();
  TG_CHECK(ShapeError, shape.size() == 2 && shape[1].value() >= 1 && shape[1].value() <= impl_->time,
           "[adapters] got tokens of shape ", shape, ", expected (batch, time) with a time of 1 to ", impl_->time);
  const int64_t time = shape[1].value();
  const Tensor positions =
      Tensor::arange(time, {.dtype = dtypes::int32, .device = tokens.device()}).unsqueeze(0).expand(shape);
  const StepRows rows{positions, {}, {}, blocks_of(time)};
  const DecoderNetwork& network = *impl_->network;
  const StepContext step = network.context(rows, rows, {});
  Tensor x = network.embed(tokens, step);
  for (const DecoderLayer& layer : network.layers()) x = layer(x, step);
  return network.logits(x.flatten(0, 1)).unflatten(0, {shape[0].value(), time});
}

Tensor AdaptedModel::loss(const Tensor& tokens) const {
  TG_CHECK(ShapeError, tokens.shape().size() == 2 && tokens.shape(1) >= 2, "[adapters] got tokens of shape ",
           tokens.shape(), ", expected (batch, time) with a time of 2 or more");
  const int64_t time = tokens.shape(1);
  return logits(tokens.slice(1, 0, time - 1)).sparse_categorical_crossentropy(tokens.slice(1, 1, time));
}

}  // namespace tg::llm
