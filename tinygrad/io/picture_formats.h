/// \file Decoders of picture.cpp that have files of their own.
#pragma once
#include "tinygrad/io/picture.h"

namespace tg::io {

/// Makes an image of this size with black pixels. FormatError for more than kMaxPixels, and for none.
Image blank_image(int64_t height, int64_t width, std::string_view what, int64_t channels = 3);
/// Puts red, green, blue and alpha over white.
Image over_white(const Image& rgba, std::string_view what);

/// Decodes Windows bitmaps that are not compressed (https://learn.microsoft.com/windows/win32/gdi/bitmap-storage), as
/// red, green and blue. FormatError as decode_image.
Image decode_bmp(std::span<const uint8_t> file, std::string_view what);
/// Decodes WebP by libwebp, as red, green and blue. FormatError as decode_image, for animations, and in a build without
/// that library.
Image decode_webp(std::span<const uint8_t> file, std::string_view what);

}  // namespace tg::io
