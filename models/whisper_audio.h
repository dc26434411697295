/// \file Spectrograms as Whisper hears them: windows of 25 ms every 10 ms, their power in mel bands, as logarithms.
#pragma once
#include <cstdint>

#include "tinygrad/tensor/tensor.h"

namespace tg::models {

inline constexpr int64_t kWhisperRate = 16000;  ///< samples per second
inline constexpr int64_t kWhisperHop = 160;     ///< samples from one spectrum to the next

struct WhisperMelOptions {
  int64_t mels = 80;
  int64_t samples = 30 * kWhisperRate;  ///< audio is cut to this, or silence is added; 0: as long as it is
};

/// Returns the spectrogram (batch, mels, samples / 160) of audio (batch, samples) from -1 to 1, in float32. ShapeError
/// for other than two axes, and for less audio than half a window.
Tensor whisper_log_mel(const Tensor& audio, const WhisperMelOptions& o = {});
/// Returns the weights of `mels` overlapping bands over the frequencies of a window's spectrum, (mels, 201): Slaney's
/// mel scale, bands of equal area. ValueError for no bands.
Tensor whisper_mel_filters(int64_t mels);

}  // namespace tg::models
