/// \file Spectrograms by products with sines and cosines.
#include "models/whisper_audio.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

constexpr int64_t kWindow = 400, kBins = kWindow / 2 + 1;
// Slaney's scale: linear up to 1000 Hz, logarithmic from there on.
constexpr double kHzPerMel = 200.0 / 3, kLogHz = 1000, kLogMel = kLogHz / kHzPerMel;
const double kLogStep = std::log(6.4) / 27;

double mel_of(double hz) { return hz < kLogHz ? hz / kHzPerMel : kLogMel + std::log(hz / kLogHz) / kLogStep; }
double hz_of(double mel) { return mel < kLogMel ? mel * kHzPerMel : kLogHz * std::exp(kLogStep * (mel - kLogMel)); }

/// Returns a Hann window times cosines and then sines of all frequencies, (window, 2 bins).
Tensor fourier() {
  std::vector<float> out;
  for (int64_t t = 0; t < kWindow; t++) {
    const double step = 2 * std::numbers::pi / static_cast<double>(kWindow);
    const double window = 0.5 - 0.5 * std::cos(step * static_cast<double>(t));
    // The phase is reduced exactly before it becomes a float.
    auto phase = [&](int64_t bin) { return step * static_cast<double>(bin * t % kWindow); };
    for (int64_t bin = 0; bin < kBins; bin++) out.push_back(static_cast<float>(window * std::cos(phase(bin))));
    for (int64_t bin = 0; bin < kBins; bin++) out.push_back(static_cast<float>(window * std::sin(phase(bin))));
  }
  return Tensor::from(out, {kWindow, 2 * kBins});
}

}  // namespace

Tensor whisper_mel_filters(int64_t mels) {
  TG_CHECK(ValueError, mels > 0, "[whisper_mel_filters] got ", mels, " bands, expected at least 1");
  std::vector<double> edges;
  const double last = mel_of(kWhisperRate / 2.0);
  for (int64_t i = 0; i < mels + 2; i++)
    edges.push_back(hz_of(last * static_cast<double>(i) / static_cast<double>(mels + 1)));
  std::vector<float> out;
  for (size_t band = 0; band < static_cast<size_t>(mels); band++)
    for (int64_t bin = 0; bin < kBins; bin++) {
      const double hz = static_cast<double>(bin * kWhisperRate) / static_cast<double>(kWindow);
      const double up = (hz - edges[band]) / (edges[band + 1] - edges[band]);
      const double down = (edges[band + 2] - hz) / (edges[band + 2] - edges[band + 1]);
      const double area = 2 / (edges[band + 2] - edges[band]);
      out.push_back(static_cast<float>(area * std::max(0.0, std::min(up, down))));
    }
  return Tensor::from(out, {mels, kBins});
}

Tensor whisper_log_mel(const Tensor& audio, const WhisperMelOptions& o) {
  TG_CHECK(ShapeError, audio.ndim() == 2, "[whisper_log_mel] got audio ", audio.shape(), ", expected (batch, samples)");
  const int64_t length = audio.shape(1), samples = o.samples == 0 ? length : o.samples;
  TG_CHECK(ShapeError, samples > kWindow / 2, "[whisper_log_mel] got ", samples, " samples, expected more than ",
           kWindow / 2);
  const Tensor cut = audio.cast(dtypes::float32).pad(Ints{0, samples - length});
  const Tensor mirrored = cut.pad(Ints{kWindow / 2, kWindow / 2}, {.mode = PadOptions::kReflect});
  // The last window is left out, so that there is one for each hop.
  const Tensor windows = mirrored.unfold(1, kWindow, kWhisperHop)(Slice(), Slice(0, samples / kWhisperHop));
  const Tensors parts = windows.dot(fourier().to(audio.device())).chunk(2, -1);
  const Tensor power = parts[0].square() + parts[1].square();
  const Tensor bands = power.dot(whisper_mel_filters(o.mels).to(audio.device()).T()).transpose(1, 2);
  const Tensor logs = bands.clamp(Tensor(1e-10)).log10();
  return (logs.maximum(logs.max({1, 2}, true) - 8.0) + 4.0) / 4.0;
}

}  // namespace tg::models
