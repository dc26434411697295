/// \file WebP, by libwebp where the build has it.
#ifdef TG_WEBP
#include <webp/decode.h>
#endif

#include "tinygrad/base/error.h"
#include "tinygrad/io/picture_formats.h"

namespace tg::io {

#ifdef TG_WEBP
Image decode_webp(std::span<const uint8_t> file, std::string_view what) {
  WebPBitstreamFeatures f{};
  TG_CHECK(FormatError, WebPGetFeatures(file.data(), file.size(), &f) == VP8_STATUS_OK, what, ": damaged WebP");
  TG_CHECK(FormatError, !f.has_animation, what, ": this is a WebP animation, expected one picture");
  const int channels = f.has_alpha ? 4 : 3;
  Image out = blank_image(f.height, f.width, what, channels);
  const auto decode = f.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  TG_CHECK(FormatError, decode(file.data(), file.size(), out.pixels.data(), out.pixels.size(), f.width * channels),
           what, ": damaged WebP");
  return f.has_alpha ? over_white(out, what) : out;
}
#else
Image decode_webp(std::span<const uint8_t>, std::string_view what) {
  throw FormatError(str(what, ": this is WebP, which this build does not read: libwebp was not there"));
}
#endif

}  // namespace tg::io
