/// \file Pictures and sound: what is decoded, and files that are damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "helpers/error_text.h"
#include "helpers/malformed.h"
#include "tinygrad/base/binary.h"
#include "tinygrad/io/picture.h"
#include "tinygrad/io/sound.h"

namespace tg {
namespace {

using io::Image;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

/// A picture of smooth colors.
Image gradient(int64_t height, int64_t width, int64_t channels) {
  Image out{height, width, channels, {}};
  for (int64_t y = 0; y < height; y++)
    for (int64_t x = 0; x < width; x++)
      for (int64_t c = 0; c < channels; c++)
        out.pixels.push_back(static_cast<uint8_t>((y * 3 + x * (c + 1) * 2) % 200));
  return out;
}

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }
Image decode(const Bytes& file, int64_t channels = 3) { return io::decode_image(file, channels, "[test] p"); }

TEST(Pictures, PngIsExact) {
  for (const int64_t channels : {1, 3})
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{1, 1}, {5, 7}, {64, 33}}) {
      const Image from = gradient(h, w, channels), to = decode(io::encode_png(from), channels);
      EXPECT_EQ(to.height, h);
      EXPECT_EQ(to.width, w);
      EXPECT_EQ(to.pixels, from.pixels);
    }
}

TEST(Pictures, GreyBecomesColorAndColorGrey) {
  const Image grey = gradient(4, 5, 1), colored = decode(io::encode_png(grey), 3);
  for (size_t i = 0; i < grey.pixels.size(); i++)
    for (size_t c = 0; c < 3; c++) EXPECT_EQ(colored.pixels[3 * i + c], grey.pixels[i]);
  EXPECT_EQ(decode(bytes("P6 1 1 255 \xff\xff\xff"), 1).pixels, (Bytes{255}));
  EXPECT_EQ(decode(bytes(std::string_view("P6 1 1 255\n\xff\x00\x00", 14)), 1).pixels, (Bytes{76}));  // 0.299 of 255
}

TEST(Pictures, JpegIsClose) {
  for (const int64_t channels : {1, 3}) {
    const Image from = gradient(40, 56, channels), to = decode(io::encode_jpeg(from, 95), channels);
    ASSERT_EQ(to.pixels.size(), from.pixels.size());
    double error = 0;
    for (size_t i = 0; i < to.pixels.size(); i++)
      error += std::abs(static_cast<double>(to.pixels[i]) - static_cast<double>(from.pixels[i]));
    EXPECT_LT(error / static_cast<double>(to.pixels.size()), 4);
  }
}

TEST(Pictures, Netpbm) {
  const Image rgb = decode(bytes("P6\n# two pixels\n2 1\n255\nabcdef"));
  EXPECT_EQ(rgb.width, 2);
  EXPECT_EQ(rgb.pixels, bytes("abcdef"));
  EXPECT_EQ(decode(bytes("P5 2 1 3\n\x01\x03"), 1).pixels, (Bytes{85, 255}));
}

/// A bitmap with a header of 40 bytes, and what follows it: masks, palette, pixels.
Bytes bitmap(int32_t width, int32_t height, uint16_t bits, const Bytes& rest, size_t pixels, uint32_t compression = 0,
             uint32_t colors = 0) {
  ByteWriter out;
  out.bytes = {'B', 'M'};
  out.value(uint32_t{0});
  out.value(uint32_t{0});
  out.value(static_cast<uint32_t>(54 + pixels));
  out.value(uint32_t{40});
  out.value(width);
  out.value(height);
  out.value(uint16_t{1});
  out.value(bits);
  out.value(compression);
  for (int i = 0; i < 3; i++) out.value(uint32_t{0});
  out.value(colors);
  out.value(uint32_t{0});
  out.bytes.insert(out.bytes.end(), rest.begin(), rest.end());
  return out.bytes;
}

TEST(Pictures, Bitmaps) {
  // Two rows, the lower one first, each of a multiple of four bytes.
  const Bytes colors{3, 2, 1, 6, 5, 4, 0, 0, 9, 8, 7, 12, 11, 10, 0, 0};
  EXPECT_EQ(decode(bitmap(2, 2, 24, colors, 0)).pixels, (Bytes{7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(decode(bitmap(2, -2, 24, colors, 0)).pixels, (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(decode(bitmap(1, 1, 32, {3, 2, 1, 0}, 0)).pixels, (Bytes{1, 2, 3}));
  EXPECT_EQ(decode(bitmap(1, 1, 16, {0x1f, 0x7c, 0, 0}, 0)).pixels, (Bytes{255, 0, 255}));
  const Bytes palette{0, 0, 0, 0, 3, 2, 1, 0};
  Bytes indexed = palette;
  indexed.insert(indexed.end(), {0x40, 0, 0, 0});
  EXPECT_EQ(decode(bitmap(3, 1, 1, indexed, 8)).pixels, (Bytes{0, 0, 0, 1, 2, 3, 0, 0, 0}));
  indexed[8] = 0x10;
  EXPECT_EQ(decode(bitmap(2, 1, 4, indexed, 8, 0, 2)).pixels, (Bytes{1, 2, 3, 0, 0, 0}));
  const Bytes masks{0, 0xf8, 0, 0, 0xe0, 0x07, 0, 0, 0x1f, 0, 0, 0, 0xe0, 0xff, 0, 0};  // 5, 6 and 5 bits
  EXPECT_EQ(decode(bitmap(1, 1, 16, masks, 12, 3)).pixels, (Bytes{255, 255, 0}));
  // Of the old kind, with 16-bit sizes.
  EXPECT_EQ(decode(bytes(std::string_view("BM\0\0\0\0\0\0\0\0\x1a\0\0\0\x0c\0\0\0\1\0\1\0\1\0\x18\0cba\0", 30))).pixels,
            bytes("abc"));

  const auto text = [](const Bytes& file) { return test::error_text<FormatError>([&] { decode(file); }); };
  EXPECT_EQ(text(bitmap(2, 2, 24, {1, 2}, 0)), "[test] p: got 2 bytes of pixels, expected 16");
  EXPECT_EQ(text(bitmap(1 << 30, 1 << 30, 24, {}, 0)),
            "[test] p: got 1073741824 x 1073741824 pixels, expected 1 to 134217728");
  EXPECT_EQ(text(bitmap(-1, INT32_MIN, 24, {}, 0)), "[test] p: got -1 x 2147483648 pixels, expected 1 to 134217728");
  EXPECT_EQ(text(bitmap(1, 1, 8, {}, 0, 1)), "[test] p: got a compressed bitmap, which is not read");
  EXPECT_EQ(text(bitmap(1, 1, 9, {}, 0)), "[test] p: got pixels of another number of bits than 1, 4, 8, 16, 24 and 32");
  indexed[8] = 0x20;
  EXPECT_EQ(text(bitmap(2, 1, 4, indexed, 8, 0, 2)), "[test] p: got color 2 of a palette of 2");
  EXPECT_EQ(text(bitmap(1, 1, 16, {5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 12, 3)), "[test] p: got a mask with holes");
  EXPECT_EQ(text(bytes("BM")), "[test] p: got an early end");
}

TEST(Pictures, WebP) {
  const Bytes colors = bytes(std::string_view(
      "\x52\x49\x46\x46\x32\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x4c\x26\x00\x00\x00\x2f\x01\x40\x00\x00\x1f\x20\x10"
      "\x20\x78\xf0\xbf\x6a\x43\x48\x90\xd0\xfd\xbf\x57\x81\x00\xc1\x88\xff\x4b\xf3\x1f\xf8\xe4\xa8\xe0\x06\x0c\x11\xfd"
      "\x0f\x01",
      58));
  const Bytes alpha = bytes(std::string_view(
      "\x52\x49\x46\x46\x1e\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x4c\x12\x00\x00\x00\x2f\x01\x00\x00"
      "\x10\x0f\x30\x14\xa3\x30\x1e\xf3\x1f\xf0\xc8\x88\xfe\x07",
      38));
  const std::string text = test::error_text<FormatError>([&] { decode(Bytes(colors.begin(), colors.begin() + 30)); });
  if (text.find("libwebp was not there") != std::string::npos) return;  // a build without it says so
  EXPECT_EQ(text, "[test] p: damaged WebP");
  EXPECT_EQ(decode(colors).pixels, (Bytes{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30}));
  EXPECT_EQ(decode(alpha).pixels, (Bytes{10, 20, 30, 255, 255, 255}));  // what is transparent is white
}

TEST(Pictures, WhatIsNoPictureSaysSo) {
  const auto text = [](const Bytes& file) { return test::error_text<FormatError>([&] { decode(file); }); };
  EXPECT_EQ(text(bytes("hello")), "[test] p: this is no picture, expected JPEG, PNG, WebP, BMP, PPM or PGM");
  EXPECT_EQ(text({}), "[test] p: this is no picture, expected JPEG, PNG, WebP, BMP, PPM or PGM");
  EXPECT_THAT(text(bytes("\xff\xd8\xff\xe0 and so on")), HasSubstr("[test] p: damaged JPEG: "));
  EXPECT_THAT(text(bytes("\x89PNG\r\n\x1a\n and so on")), HasSubstr("[test] p: damaged PNG: "));
  EXPECT_EQ(text(bytes("P6 3 2 255\nabc")), "[test] p: got 3 bytes of pixels, expected 18");
  EXPECT_EQ(text(bytes("P6 3 x")), "[test] p: damaged header at byte 5, expected a number");
  EXPECT_EQ(text(bytes("P6 3 2 65535\n")), "[test] p: got values up to 65535, expected at most 255");
  EXPECT_EQ(text(bytes("P6 200000 200000 255\n")), "[test] p: got 200000 x 200000 pixels, expected 1 to 134217728");
  EXPECT_EQ(text(bytes("P5 0 4 255\n")), "[test] p: got 0 x 4 pixels, expected 1 to 134217728");
  EXPECT_EQ(test::error_text<ValueError>([] { decode(io::encode_png(gradient(2, 2, 3)), 4); }),
            "[test] p: got 4 channels, expected 1 or 3");
}

TEST(Pictures, FilesThatAreCutOffAreErrors) {
  for (const Bytes& whole : {io::encode_png(gradient(30, 40, 3)), io::encode_jpeg(gradient(30, 40, 3), 90)})
    for (size_t n = 0; n < whole.size() - 20; n += 1 + whole.size() / 40)
      EXPECT_THROW(decode(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n))), FormatError) << n;
}

TEST(Pictures, WhatCannotBeEncodedSaysSo) {
  EXPECT_EQ(test::error_text<ValueError>([] { io::encode_png({2, 2, 3, Bytes(11)}); }),
            "[encode_png] got 11 bytes for 2 x 2 pixels of 3 channels");
  EXPECT_EQ(test::error_text<ValueError>([] { io::encode_png({2, 2, 2, Bytes(8)}); }),
            "[encode_png] got 2 channels, expected 1 or 3");
  EXPECT_EQ(test::error_text<ValueError>([] { io::encode_jpeg(gradient(2, 2, 3), 101); }),
            "[encode_jpeg] got quality 101, expected 1 to 100");
}

io::Sound tone(int64_t rate, int64_t channels, int64_t frames, double frequency) {
  io::Sound out{rate, channels, {}};
  for (int64_t i = 0; i < frames; i++)
    for (int64_t c = 0; c < channels; c++)
      out.samples.push_back(static_cast<float>(
          0.5 * std::sin(2 * std::numbers::pi * frequency * static_cast<double>(i) / static_cast<double>(rate))));
  return out;
}

TEST(Sounds, GrowAtMost64Times) {
  EXPECT_THROW(io::mono({.rate = 1, .channels = 1, .samples = std::vector<float>(1000)}, 16000), FormatError);
  EXPECT_EQ(io::mono({.rate = 250, .channels = 1, .samples = std::vector<float>(10)}, 16000).size(), 640u);
}

TEST(Sounds, WavIsThereAndBack) {
  for (const int64_t channels : {1, 2}) {
    const io::Sound from = tone(16000, channels, 1000, 440);
    const Bytes file = io::encode_wav(from);
    EXPECT_TRUE(io::is_sound(file));
    const io::Sound to = io::decode_sound(file, "[test] s");
    EXPECT_EQ(to.rate, 16000);
    EXPECT_EQ(to.channels, channels);
    ASSERT_EQ(to.samples.size(), from.samples.size());
    for (size_t i = 0; i < to.samples.size(); i++) EXPECT_NEAR(to.samples[i], from.samples[i], 1.0 / 32000);
  }
  EXPECT_EQ(io::decode_sound(io::encode_wav({8000, 1, {2, -2}}), "[test] s").samples.at(1), -1);  // clipped
}

TEST(Sounds, ResamplingKeepsWhatTheNewRateHas) {
  const std::vector<float> low = io::mono(tone(48000, 2, 48000, 440), 16000);
  ASSERT_EQ(low.size(), 16000u);
  const io::Sound expected = tone(16000, 1, 16000, 440);
  for (size_t i = 200; i < 15800; i++) ASSERT_NEAR(low[i], expected.samples[i], 1e-3) << i;
  const std::vector<float> high = io::mono(tone(48000, 1, 48000, 11000), 16000);  // above half of the new rate
  for (size_t i = 200; i < 15800; i++) ASSERT_LT(std::abs(high[i]), 0.01f) << i;
  EXPECT_EQ(io::mono(tone(16000, 1, 100, 440), 16000), tone(16000, 1, 100, 440).samples);
  EXPECT_TRUE(io::mono({16000, 1, {}}, 8000).empty());
}

TEST(Sounds, ErrorsSayWhat) {
  EXPECT_EQ(test::error_text<FormatError>([] { io::decode_sound(bytes("hello"), "[test] s"); }),
            "[test] s: this is no sound, expected WAV, FLAC, Ogg or AIFF");
  EXPECT_THAT(test::error_text<FormatError>([] { io::decode_sound(bytes("RIFF    WAVEfmt"), "[test] s"); }),
              HasSubstr("[test] s: damaged sound: "));
  EXPECT_FALSE(io::is_sound(bytes("hello")));
  EXPECT_EQ(test::error_text<ValueError>([] { io::mono({16000, 1, {0}}, 0); }),
            "[mono] got 1 channels at 16000 Hz for 0 Hz, expected positive numbers");
  EXPECT_EQ(test::error_text<ValueError>([] { io::encode_wav({16000, 2, {0}}); }),
            "[encode_wav] got 1 samples of 2 channels, expected whole frames");
}

/// Decodes what may be damaged: a picture or a sound, or a FormatError.
void decode_any(const std::string& file) {
  const std::span<const uint8_t> in(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  try {
    if (io::image_kind(in).empty()) io::decode_sound(in, "[test] s");
    else io::decode_image(in, 3, "[test] p");
  } catch (const FormatError&) {}
}

TEST(MalformedFiles, PicturesAndSounds) {
  const auto text = [](const Bytes& b) { return std::string(b.begin(), b.end()); };
  const std::vector<std::string> valid{
      text(io::encode_png(gradient(9, 12, 3))),  text(io::encode_jpeg(gradient(9, 12, 3))),
      text(io::encode_jpeg(gradient(9, 12, 1))), "P6 2 2 255\nabcdefghijkl",
      text(bitmap(2, 2, 24, Bytes(16, 7), 0)),   text(io::encode_wav(tone(8000, 2, 50, 99)))};
  test::Damage damage(7);
  for (int i = 0; i < 4000; i++)
    decode_any(damage(valid[static_cast<size_t>(i) % valid.size()], valid[static_cast<size_t>(i / 5) % valid.size()]));
}

}  // namespace
}  // namespace tg
