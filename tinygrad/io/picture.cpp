/// \file Decoding and encoding of pictures.
#include "tinygrad/io/picture.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>

#include "tinygrad/base/error.h"
#include "tinygrad/io/picture_formats.h"

namespace tg::io {
namespace {

void check_size(int64_t height, int64_t width, std::string_view what) {
  TG_CHECK(FormatError, height > 0 && width > 0 && height <= kMaxPixels / width, what, ": got ", width, " x ", height,
           " pixels, expected 1 to ", kMaxPixels);
}

}  // namespace

Image blank_image(int64_t height, int64_t width, std::string_view what, int64_t channels) {
  check_size(height, width, what);
  return {height, width, channels, std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
}

Image over_white(const Image& rgba, std::string_view what) {
  Image out = blank_image(rgba.height, rgba.width, what);
  for (size_t i = 0; i < static_cast<size_t>(rgba.height * rgba.width); i++) {
    const uint32_t alpha = rgba.pixels[4 * i + 3];
    for (size_t c = 0; c < 3; c++)
      out.pixels[3 * i + c] = static_cast<uint8_t>((rgba.pixels[4 * i + c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
  return out;
}

namespace {

bool begins_with(std::span<const uint8_t> file, std::string_view bytes) {
  return file.size() >= bytes.size() && std::equal(bytes.begin(), bytes.end(), file.begin(),
                                                   [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

void check_fits(const Image& image, const char* op) {
  TG_CHECK(ValueError, image.channels == 1 || image.channels == 3, "[", op, "] got ", image.channels,
           " channels, expected 1 or 3");
  TG_CHECK(ValueError,
           image.height > 0 && image.width > 0 && image.height <= kMaxPixels / image.width &&
               image.pixels.size() == static_cast<size_t>(image.height * image.width * image.channels),
           "[", op, "] got ", image.pixels.size(), " bytes for ", image.width, " x ", image.height, " pixels of ",
           image.channels, " channels");
}

// ---- JPEG ----

struct CloseJpeg {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Jpeg = std::unique_ptr<void, CloseJpeg>;

/// Multiplies cyan, magenta and yellow with black: what files of printers hold, inverted, is that already.
Image of_cmyk(const Image& four, std::string_view what) {
  Image out = blank_image(four.height, four.width, what);
  for (size_t i = 0; i < static_cast<size_t>(four.height * four.width); i++)
    for (size_t c = 0; c < 3; c++)
      out.pixels[3 * i + c] = static_cast<uint8_t>(four.pixels[4 * i + c] * uint32_t{four.pixels[4 * i + 3]} / 255);
  return out;
}

Image decode_jpeg(std::span<const uint8_t> file, std::string_view what) {
  const Jpeg jpeg(tjInitDecompress());
  TG_CHECK(OutOfMemoryError, jpeg, what, ": no memory for the decoder");
  int width = 0, height = 0, sampling = 0, space = 0;
  const auto failed = [&] { return str(what, ": damaged JPEG: ", tjGetErrorStr2(jpeg.get())); };
  TG_CHECK(FormatError,
           tjDecompressHeader3(jpeg.get(), file.data(), file.size(), &width, &height, &sampling, &space) == 0,
           failed());
  TG_CHECK(FormatError, width > 0 && height > 0, what, ": damaged JPEG: it has no pixels");
  const bool printed = space == TJCS_CMYK || space == TJCS_YCCK;
  const int format = printed ? TJPF_CMYK : TJPF_RGB;
  Image image = blank_image(height, width, what, printed ? 4 : 3);
  const int result = tjDecompress2(jpeg.get(), file.data(), file.size(), image.pixels.data(), width, 0, height, format,
                                   TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  // The library only warns where a file is cut off, as it does of oddities that many files have.
  const bool odd = result != 0 && tjGetErrorCode(jpeg.get()) == TJERR_WARNING &&
                   std::string_view(tjGetErrorStr2(jpeg.get())).find("Premature end") == std::string_view::npos;
  TG_CHECK(FormatError, result == 0 || odd, failed());
  return printed ? of_cmyk(image, what) : image;
}

// ---- PNG ----

struct Png {
  png_image image{};
  Png() { image.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image); }
  Png(const Png&) = delete;
};

Image decode_png(std::span<const uint8_t> file, std::string_view what) {
  Png png;
  const auto failed = [&] { return str(what, ": damaged PNG: ", png.image.message); };
  TG_CHECK(FormatError, png_image_begin_read_from_memory(&png.image, file.data(), file.size()), failed());
  Image image = blank_image(png.image.height, png.image.width, what);
  png.image.format = PNG_FORMAT_RGB;
  const png_color white{255, 255, 255};
  TG_CHECK(FormatError, png_image_finish_read(&png.image, &white, image.pixels.data(), 0, nullptr), failed());
  return image;
}

// ---- Netpbm (https://netpbm.sourceforge.net/doc/ppm.html) ----

/// Reads the numbers of a header, between which are spaces and comments.
class NetpbmHeader {
 public:
  NetpbmHeader(std::span<const uint8_t> file, std::string_view what) : file_(file), what_(what) {}
  int64_t number() {
    skip();
    int64_t n = 0;
    const size_t first = at_;
    for (; at_ < file_.size() && file_[at_] >= '0' && file_[at_] <= '9' && n < kMaxPixels; at_++)
      n = n * 10 + (file_[at_] - '0');
    TG_CHECK(FormatError, at_ > first, what_, ": damaged header at byte ", at_, ", expected a number");
    return n;
  }
  /// Returns what follows one white space after the last number.
  std::span<const uint8_t> rest() const { return file_.subspan(std::min(at_ + 1, file_.size())); }

 private:
  void skip() {
    for (; at_ < file_.size(); at_++) {
      if (file_[at_] == '#')
        while (at_ + 1 < file_.size() && file_[at_ + 1] != '\n') at_++;
      else if (file_[at_] != ' ' && (file_[at_] < 9 || file_[at_] > 13)) return;
    }
  }
  std::span<const uint8_t> file_;
  std::string_view what_;
  size_t at_ = 2;
};

Image decode_netpbm(std::span<const uint8_t> file, std::string_view what) {
  NetpbmHeader header(file, what);
  const int64_t width = header.number(), height = header.number(), most = header.number();
  TG_CHECK(FormatError, most > 0 && most < 256, what, ": got values up to ", most, ", expected at most 255");
  const int64_t own = file[1] == '6' ? 3 : 1;
  check_size(height, width, what);
  const std::span<const uint8_t> from = header.rest();
  TG_CHECK(FormatError, from.size() >= static_cast<size_t>(height * width * own), what, ": got ", from.size(),
           " bytes of pixels, expected ", height * width * own);
  Image image = blank_image(height, width, what);
  const auto scaled = [&](size_t at) {
    return std::min<uint32_t>(from[at], static_cast<uint32_t>(most)) * 255 / static_cast<uint32_t>(most);
  };
  const auto n = static_cast<size_t>(own);
  for (size_t i = 0; i < image.pixels.size(); i++) image.pixels[i] = static_cast<uint8_t>(scaled(n == 3 ? i : i / 3));
  return image;
}

/// Returns the brightness of each pixel (ITU-R BT.601), as Pillow computes it: exactly that of grey pixels.
Image grey_of(const Image& rgb, std::string_view what) {
  Image out = blank_image(rgb.height, rgb.width, what, 1);
  for (size_t i = 0; i < out.pixels.size(); i++) {
    const uint8_t* p = &rgb.pixels[3 * i];
    out.pixels[i] = static_cast<uint8_t>((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
  }
  return out;
}

}  // namespace

std::string_view image_kind(std::span<const uint8_t> file) {
  if (begins_with(file, "\xff\xd8\xff")) return "jpeg";
  if (begins_with(file, "\x89PNG\r\n\x1a\n")) return "png";
  if (begins_with(file, "P5") || begins_with(file, "P6")) return "netpbm";
  if (begins_with(file, "RIFF") && file.size() > 12 && begins_with(file.subspan(8), "WEBP")) return "webp";
  return begins_with(file, "BM") ? "bmp" : "";
}

Image decode_image(std::span<const uint8_t> file, int64_t channels, std::string_view what) {
  TG_CHECK(ValueError, channels == 1 || channels == 3, what, ": got ", channels, " channels, expected 1 or 3");
  const std::string_view kind = image_kind(file);
  TG_CHECK(FormatError, !kind.empty(), what, ": this is no picture, expected JPEG, PNG, WebP, BMP, PPM or PGM");
  const auto decode = kind == "jpeg"   ? decode_jpeg
                      : kind == "png"  ? decode_png
                      : kind == "webp" ? decode_webp
                      : kind == "bmp"  ? decode_bmp
                                       : decode_netpbm;
  Image rgb = decode(file, what);
  return channels == 1 ? grey_of(rgb, what) : std::move(rgb);
}

std::vector<uint8_t> encode_png(const Image& image) {
  check_fits(image, "encode_png");
  Png png;
  png.image.width = static_cast<png_uint_32>(image.width);
  png.image.height = static_cast<png_uint_32>(image.height);
  png.image.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png.image);
  std::vector<uint8_t> out(size);
  TG_CHECK(ValueError, png_image_write_to_memory(&png.image, out.data(), &size, 0, image.pixels.data(), 0, nullptr),
           "[encode_png] ", png.image.message);
  out.resize(size);
  return out;
}

std::vector<uint8_t> encode_jpeg(const Image& image, int quality) {
  check_fits(image, "encode_jpeg");
  TG_CHECK(ValueError, quality >= 1 && quality <= 100, "[encode_jpeg] got quality ", quality, ", expected 1 to 100");
  const Jpeg jpeg(tjInitCompress());
  TG_CHECK(OutOfMemoryError, jpeg, "[encode_jpeg] no memory for the encoder");
  const int sampling = image.channels == 1 ? TJSAMP_GRAY : TJSAMP_444;
  const auto width = static_cast<int>(image.width), height = static_cast<int>(image.height);
  std::vector<uint8_t> out(tjBufSize(width, height, sampling));
  unsigned char* to = out.data();
  unsigned long size = out.size();
  TG_CHECK(ValueError,
           tjCompress2(jpeg.get(), image.pixels.data(), width, 0, height, image.channels == 1 ? TJPF_GRAY : TJPF_RGB,
                       &to, &size, sampling, quality, TJFLAG_NOREALLOC | TJFLAG_ACCURATEDCT) == 0,
           "[encode_jpeg] ", tjGetErrorStr2(jpeg.get()));
  out.resize(size);
  return out;
}

}  // namespace tg::io
