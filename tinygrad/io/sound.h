/// \file Sound files, by libsndfile: WAV, FLAC, Ogg and AIFF. Nothing in a file is trusted.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tg::io {

/// Samples in [-1, 1], those of all channels of one moment next to each other: (frames, channels).
struct Sound {
  int64_t rate = 16000;  ///< frames a second
  int64_t channels = 1;
  std::vector<float> samples;
};

/// Most samples of a sound that is read: an hour and a half at 48 kHz.
inline constexpr int64_t kMaxSamples = int64_t{1} << 28;

/// Returns whether a file that begins with these bytes is WAV, FLAC, Ogg or AIFF.
bool is_sound(std::span<const uint8_t> file);

/// Decodes a sound. Throws FormatError that begins with `what`: for other files, damaged ones, and more than
/// kMaxSamples.
Sound decode_sound(std::span<const uint8_t> file, std::string_view what);
/// Returns the mean of the channels at another rate: each sample is a sum of the samples around it by a sinc with a
/// Hann window of 16 zero crossings to each side, which lets no frequency through that the new rate has not. ValueError
/// for a rate that is not positive, FormatError for a sound of less than a 64th of the rate or one that becomes larger
/// than kMaxSamples.
std::vector<float> mono(const Sound& sound, int64_t rate);
/// Returns the sound as a WAV file of 16 bits; samples beyond [-1, 1] are clipped. ValueError for a rate or a number of
/// channels that is not positive, and for samples that do not fill whole frames.
std::vector<uint8_t> encode_wav(const Sound& sound);

}  // namespace tg::io
