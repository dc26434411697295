/// \file Decoding and encoding of sound.
#include "tinygrad/io/sound.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

/// A file in memory as libsndfile reads and writes it.
struct Memory {
  std::span<const uint8_t> from;
  std::vector<uint8_t>* to = nullptr;
  sf_count_t at = 0;

  sf_count_t size() const { return static_cast<sf_count_t>(to ? to->size() : from.size()); }
  static sf_count_t length(void* self) { return static_cast<Memory*>(self)->size(); }
  static sf_count_t tell(void* self) { return static_cast<Memory*>(self)->at; }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    Memory& m = *static_cast<Memory*>(self);
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? m.at : m.size();
    if (offset < -base || offset > m.size() - base) return -1;
    return m.at = base + offset;
  }
  static sf_count_t read(void* out, sf_count_t count, void* self) {
    Memory& m = *static_cast<Memory*>(self);
    count = std::clamp<sf_count_t>(count, 0, m.size() - m.at);
    if (count > 0) std::memcpy(out, m.from.data() + m.at, static_cast<size_t>(count));
    m.at += count;
    return count;
  }
  static sf_count_t write(const void* bytes, sf_count_t count, void* self) {
    Memory& m = *static_cast<Memory*>(self);
    if (m.at + count > m.size()) m.to->resize(static_cast<size_t>(m.at + count));
    std::memcpy(m.to->data() + m.at, bytes, static_cast<size_t>(count));
    m.at += count;
    return count;
  }
};
SF_VIRTUAL_IO kMemory{Memory::length, Memory::seek, Memory::read, Memory::write, Memory::tell};

/// Returns samples that are `step` old ones apart.
std::vector<float> resampled(const std::vector<float>& from, double step) {
  constexpr double kCrossings = 16;
  const double cutoff = std::min(1.0, 1 / step), reach = kCrossings / cutoff;
  const auto n = static_cast<double>(from.size());
  std::vector<float> out(static_cast<size_t>(std::ceil(n / step)));
  for (size_t i = 0; i < out.size(); i++) {
    const double x = static_cast<double>(i) * step;
    double sum = 0, weights = 0;
    for (double k = std::max(0.0, std::ceil(x - reach)); k <= std::min(n - 1, x + reach); k++) {
      const double t = (x - k) * cutoff * std::numbers::pi;
      const double w = (t == 0 ? 1 : std::sin(t) / t) * (0.5 + 0.5 * std::cos(t / kCrossings));
      sum += w * static_cast<double>(from[static_cast<size_t>(k)]);
      weights += w;
    }
    out[i] = static_cast<float>(weights != 0 ? sum / weights : 0);
  }
  return out;
}

struct Close {
  void operator()(SNDFILE* f) const { sf_close(f); }
};
using File = std::unique_ptr<SNDFILE, Close>;

}  // namespace

bool is_sound(std::span<const uint8_t> file) {
  const auto has = [&](size_t at, std::string_view text) {
    return file.size() >= at + text.size() && std::memcmp(file.data() + at, text.data(), text.size()) == 0;
  };
  return (has(0, "RIFF") && has(8, "WAVE")) || has(0, "fLaC") || has(0, "OggS") || (has(0, "FORM") && has(8, "AIF"));
}

Sound decode_sound(std::span<const uint8_t> file, std::string_view what) {
  TG_CHECK(FormatError, is_sound(file), what, ": this is no sound, expected WAV, FLAC, Ogg or AIFF");
  Memory memory{file};
  SF_INFO info{};
  const File f(sf_open_virtual(&kMemory, SFM_READ, &info, &memory));
  TG_CHECK(FormatError, f, what, ": damaged sound: ", sf_strerror(nullptr));
  TG_CHECK(FormatError,
           info.channels > 0 && info.samplerate > 0 && info.frames >= 0 && info.frames <= kMaxSamples / info.channels,
           what, ": got ", info.frames, " frames of ", info.channels, " channels, expected at most ", kMaxSamples,
           " samples");
  Sound out{info.samplerate, info.channels, {}};
  // Read by and by: the header may say more than the file has.
  constexpr sf_count_t kFrames = 1 << 16;
  while (static_cast<int64_t>(out.samples.size()) < info.frames * info.channels) {
    const size_t before = out.samples.size();
    out.samples.resize(before + static_cast<size_t>(kFrames * info.channels));
    const sf_count_t got = sf_readf_float(f.get(), out.samples.data() + before, kFrames);
    out.samples.resize(before + static_cast<size_t>(std::max<sf_count_t>(got, 0) * info.channels));
    if (got <= 0) break;
  }
  TG_CHECK(FormatError, static_cast<int64_t>(out.samples.size()) >= info.frames * info.channels, what, ": got ",
           out.samples.size() / static_cast<size_t>(info.channels), " frames, expected the ", info.frames,
           " that its header says: the file is damaged");
  return out;
}

std::vector<float> mono(const Sound& sound, int64_t rate) {
  TG_CHECK(ValueError, rate > 0 && sound.rate > 0 && sound.channels > 0, "[mono] got ", sound.channels, " channels at ",
           sound.rate, " Hz for ", rate, " Hz, expected positive numbers");
  const auto channels = static_cast<size_t>(sound.channels), frames = sound.samples.size() / channels;
  std::vector<float> one(frames);
  for (size_t i = 0; i < frames; i++) {
    for (size_t c = 0; c < channels; c++) one[i] += sound.samples[i * channels + c];
    one[i] /= static_cast<float>(channels);
  }
  if (rate == sound.rate || frames == 0) return one;
  constexpr int64_t kMostGrowth = 64;
  TG_CHECK(FormatError, sound.rate >= rate / kMostGrowth, "[mono] got a sound of ", sound.rate,
           " Hz, expected at least ", rate / kMostGrowth, " Hz to make ", rate, " Hz of");
  const double samples = static_cast<double>(frames) * static_cast<double>(rate) / static_cast<double>(sound.rate);
  TG_CHECK(FormatError, samples <= static_cast<double>(kMaxSamples), "[mono] got ", frames, " frames at ", sound.rate,
           " Hz, expected at most ", kMaxSamples, " samples at ", rate, " Hz");
  return resampled(one, static_cast<double>(sound.rate) / static_cast<double>(rate));
}

std::vector<uint8_t> encode_wav(const Sound& sound) {
  TG_CHECK(ValueError, sound.rate > 0 && sound.rate < (1 << 30) && sound.channels > 0 && sound.channels <= 1024,
           "[encode_wav] got ", sound.channels, " channels at ", sound.rate, " Hz, expected positive numbers");
  TG_CHECK(ValueError, sound.samples.size() % static_cast<size_t>(sound.channels) == 0, "[encode_wav] got ",
           sound.samples.size(), " samples of ", sound.channels, " channels, expected whole frames");
  std::vector<uint8_t> out;
  Memory memory{{}, &out};
  SF_INFO info{};
  info.samplerate = static_cast<int>(sound.rate);
  info.channels = static_cast<int>(sound.channels);
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  {
    const File f(sf_open_virtual(&kMemory, SFM_WRITE, &info, &memory));
    TG_CHECK(ValueError, f, "[encode_wav] ", sf_strerror(nullptr));
    sf_command(f.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);
    const auto count = static_cast<sf_count_t>(sound.samples.size());
    TG_CHECK(ValueError, sf_write_float(f.get(), sound.samples.data(), count) == count, "[encode_wav] ",
             sf_strerror(f.get()));
  }
  return out;
}

}  // namespace tg::io
