/// \file From text to speech.
#include "models/vits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

const VitsOptions& checked(const VitsOptions& o) {
  TG_CHECK(ValueError, o.text.heads > 0 && o.hidden % o.text.heads == 0, "[Vits] got ", o.text.heads,
           " heads for size ", o.hidden, ", expected a divisor");
  TG_CHECK(ValueError, o.flow_size % 2 == 0, "[Vits] got flow size ", o.flow_size, ", expected an even number");
  TG_CHECK(ValueError, o.decoder.upsample_rates.size() == o.decoder.upsample_kernels.size(), "[Vits] got ",
           o.decoder.upsample_rates.size(), " rates and ", o.decoder.upsample_kernels.size(),
           " kernels, expected one kernel for each");
  return o;
}

/// Which token is spoken in each frame.
struct Frames {
  std::vector<int64_t> lengths;
  int64_t most = 1;
  std::vector<int32_t> tokens;  ///< (batch, most)
  std::vector<float> mask;      ///< 1 in the frames of a text
};

Frames frames_of(const std::vector<int64_t>& durations, int64_t batch) {
  const int64_t time = std::ssize(durations) / batch;
  Frames out;
  for (int64_t b = 0; b < batch; b++) {
    const auto first = durations.begin() + b * time;
    out.lengths.push_back(std::max<int64_t>(1, std::accumulate(first, first + time, int64_t{0})));
    out.most = std::max(out.most, out.lengths.back());
  }
  const auto size = static_cast<size_t>(batch * out.most);
  out.tokens.assign(size, -1);
  out.mask.assign(size, 0);
  for (int64_t b = 0; b < batch; b++) {
    std::fill_n(out.mask.begin() + b * out.most, out.lengths[static_cast<size_t>(b)], 1.f);
    int64_t frame = b * out.most;
    for (int64_t t = 0; t < time; t++)
      for (int64_t i = 0; i < durations[static_cast<size_t>(b * time + t)]; i++)
        out.tokens[static_cast<size_t>(frame++)] = static_cast<int32_t>(t);
  }
  return out;
}

std::string replaced(std::string name, std::string_view from, std::string_view to) {
  const size_t at = name.rfind(from);
  return at == std::string::npos ? name : name.replace(at, from.size(), to);
}

}  // namespace

Vits::Vits(const VitsOptions& o) : text_encoder(checked(o)), flow(o), decoder(o), posterior_encoder(o), options(o) {
  if (o.durations.stochastic) stochastic_durations.emplace(o);
  else durations.emplace(o);
  if (o.speakers > 1) embed_speaker.emplace(o.speakers, o.speaker_size);
}

Tensor Vits::speaker(const std::optional<int64_t>& number) const {
  if (!number) return {};
  TG_CHECK(ValueError, embed_speaker && *number >= 0 && *number < options.speakers, "[Vits] got speaker ", *number,
           ", expected ", embed_speaker ? str("0 to ", options.speakers - 1) : "none");
  return (*embed_speaker)(Tensor({*number})).unsqueeze(-1);
}

Tensor Vits::log_durations(const Tensor& hidden, const Tensor& mask, const Tensor& voice,
                           const VitsSpeechOptions& o) const {
  if (durations) return (*durations)(hidden, mask, voice);
  const Shape shape{hidden.shape(0), 2, hidden.shape(2)};
  const Tensor noise =
      o.noise_of_durations.defined() ? o.noise_of_durations : Tensor::randn(shape, {.device = hidden.device()});
  TG_CHECK(ShapeError, noise.shape() == shape, "[Vits] got noise ", noise.shape(), ", expected ", shape);
  return (*stochastic_durations)(hidden, mask, voice, noise * o.duration_noise);
}

Vits::Speech Vits::operator()(const Tensor& tokens, const VitsSpeechOptions& o) const {
  TG_CHECK(ShapeError, tokens.ndim() == 2 && (!o.mask.defined() || o.mask.shape() == tokens.shape()),
           "[Vits] got tokens ", tokens.shape(), o.mask.defined() ? str(" and mask ", o.mask.shape()) : "",
           ", expected (batch, time) for each");
  TG_CHECK(ValueError, o.rate > 0, "[Vits] got rate ", o.rate, ", expected more than 0");
  const DType type = text_encoder.embed_tokens.weight.dtype();
  const Tensor mask = (o.mask.defined() ? o.mask : tokens.ones_like()).cast(type).unsqueeze(1),
               voice = speaker(o.speaker);
  const VitsTextEncoder::Result text = text_encoder(tokens, mask);
  const Tensor spoken = (log_durations(text.hidden, mask, voice, o).exp() * mask / o.rate).ceil();
  const int64_t batch = tokens.shape(0);
  const Frames frames = frames_of(spoken.cast(dtypes::int64).to_vector<int64_t>(), batch);
  const TensorOptions here{.device = tokens.device()};
  const Tensor numbers = Tensor::from(frames.tokens, {batch, frames.most}, here).unsqueeze(1);
  const Tensor frame_mask = Tensor::from(frames.mask, {batch, 1, frames.most}, here).cast(type);
  // Frames without a token have neither mean nor deviation: 0 and 1.
  auto of_frames = [&](const Tensor& t) {
    const Tensor index = numbers.maximum(0).expand(batch, options.flow_size, frames.most);
    return (numbers >= 0).where(t.gather(2, index), 0.0);
  };
  const Tensor means = of_frames(text.means);
  Tensor noise = o.noise_of_latents;
  if (!noise.defined()) noise = Tensor::randn(means.shape(), here);
  TG_CHECK(ShapeError,
           noise.ndim() == 3 && noise.shape(0) == batch && noise.shape(1) == options.flow_size &&
               noise.shape(2) >= frames.most,
           "[Vits] got noise ", noise.shape(), ", expected at least ", means.shape());
  const Tensor drawn = means + noise.slice(2, 0, frames.most) * of_frames(text.log_deviations).exp() * o.noise;
  Speech out;
  out.latents = flow(drawn, frame_mask, voice, true) * frame_mask;
  out.audio = decoder(out.latents, voice).squeeze(1);
  for (const int64_t length : frames.lengths) {
    out.samples.push_back(length);
    for (const int64_t rate : options.decoder.upsample_rates) out.samples.back() *= rate;
  }
  return out;
}

void Vits::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("text_encoder, flow, decoder, duration_predictor, duration_predictor, embed_speaker", text_encoder,
                  flow, decoder, stochastic_durations, durations, embed_speaker);
  visitor.member("posterior_encoder", posterior_encoder);
}

nn::StateDict vits_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file)
    out.emplace_back(replaced(replaced(name, ".weight_g", ".parametrizations.weight.original0"), ".weight_v",
                              ".parametrizations.weight.original1"),
                     t);
  return out;
}

}  // namespace tg::models
