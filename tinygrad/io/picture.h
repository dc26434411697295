/// \file Pictures: JPEG by libjpeg-turbo, PNG by libpng, WebP by libwebp where the build has it, Windows bitmaps that
/// are not compressed, and the binary PPM and PGM of Netpbm. Nothing in a file is trusted.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tg::io {

/// Pixels, row by row from the top, 8 bits for each channel: (height, width, channels).
struct Image {
  int64_t height = 0, width = 0;
  int64_t channels = 3;  ///< 1: grey, 3: red, green, blue
  std::vector<uint8_t> pixels;
};

/// Most pixels of a picture that is read.
inline constexpr int64_t kMaxPixels = int64_t{1} << 27;

/// Returns the kind of file that begins with these bytes: "jpeg", "png", "webp", "bmp" or "netpbm"; ""
/// for others.
std::string_view image_kind(std::span<const uint8_t> file);

/// Decodes a picture as grey (`channels` 1) or red, green and blue (3). Colors are converted; what is transparent is
/// white; 16 bits become 8. Throws FormatError that begins with `what`: for other kinds of files, damaged and truncated
/// ones, and pictures of more than kMaxPixels; ValueError for another number of channels.
Image decode_image(std::span<const uint8_t> file, int64_t channels, std::string_view what);

/// Returns the picture as a PNG file. ValueError where the pixels do not fit the sizes.
std::vector<uint8_t> encode_png(const Image& image);
/// Returns the picture as a JPEG file of a quality from 1 to 100. ValueError as encode_png.
std::vector<uint8_t> encode_jpeg(const Image& image, int quality = 92);

}  // namespace tg::io
