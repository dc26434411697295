/// \file Windows bitmaps: rows of palette indices, or of colors in fields of 16, 24 or 32 bits.
#include <algorithm>
#include <array>
#include <bit>

#include "tinygrad/base/binary.h"
#include "tinygrad/io/picture_formats.h"

namespace tg::io {
namespace {

/// Where one channel is in a pixel.
struct Field {
  uint32_t mask = 0;
  /// Returns its value from 0 to 255; `otherwise` where there is none.
  uint8_t of(uint32_t pixel, uint8_t otherwise) const {
    if (!mask) return otherwise;
    const int low = std::countr_zero(mask);
    const uint64_t value = (pixel & mask) >> low, most = mask >> low;
    return static_cast<uint8_t>(value * 255 / most);
  }
};

struct Bitmap {
  int64_t height = 0, width = 0;
  bool from_top = false;
  uint32_t bits = 0;  ///< of a pixel
  std::array<Field, 4> fields;
  std::vector<std::array<uint8_t, 3>> palette;
};

/// Reads the masks of the channels, or makes those that pixels of so many bits have.
void read_fields(ByteReader& in, Bitmap& b, uint32_t compression, uint32_t header) {
  if (compression == 3) {
    in.check(b.bits == 16 || b.bits == 32, "masks for other than 16 or 32 bits");
    for (size_t i = 0; i < (header >= 56 ? 4 : 3); i++) b.fields[i].mask = in.value<uint32_t>();
    // Fields are runs of ones.
    for (const Field& f : b.fields)
      in.check(f.mask == 0 || ((f.mask >> std::countr_zero(f.mask)) & ((f.mask >> std::countr_zero(f.mask)) + 1)) == 0,
               "a mask with holes");
  } else if (b.bits == 16) {
    b.fields = {Field{0x7c00}, Field{0x3e0}, Field{0x1f}, Field{}};
  } else {
    b.fields = {Field{0xff0000}, Field{0xff00}, Field{0xff}, Field{}};
  }
}

/// Reads what stands before the pixels.
Bitmap read_header(std::span<const uint8_t> file, std::string_view what) {
  ByteReader in(file, std::string(what));
  in.take(14);
  Bitmap b;
  const auto header = in.value<uint32_t>();
  in.check(header == 12 || (header >= 40 && header <= 124), "a header of another size than bitmaps have");
  const bool old = header == 12;
  b.width = old ? in.value<uint16_t>() : in.value<int32_t>();
  const int64_t height = old ? in.value<uint16_t>() : in.value<int32_t>();
  b.from_top = height < 0;
  b.height = b.from_top ? -height : height;
  in.take(2);
  b.bits = in.value<uint16_t>();
  const uint32_t bits = b.bits;
  in.check(bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32,
           "pixels of another number of bits than 1, 4, 8, 16, 24 and 32");
  uint32_t compression = 0, colors = 0;
  if (!old) {
    compression = in.value<uint32_t>();
    in.take(12);
    colors = in.value<uint32_t>();
    in.take(4);
  }
  in.check(compression == 0 || compression == 3, "a compressed bitmap, which is not read");
  read_fields(in, b, compression, header);
  if (bits > 8) return b;
  const uint32_t most = uint32_t{1} << bits;
  ByteReader table(file.subspan(std::min<size_t>(file.size(), 14 + header)), std::string(what));
  for (uint32_t i = 0; i < (colors ? std::min(colors, most) : most); i++) {
    const std::span<const uint8_t> c = table.take(old ? 3 : 4);
    b.palette.push_back({c[2], c[1], c[0]});
  }
  return b;
}

/// Reads pixel `x` of a row.
uint32_t pixel_of(std::span<const uint8_t> row, size_t x, uint32_t bits) {
  if (bits < 8) return (row[x * bits / 8] >> (8 - bits - x * bits % 8)) & ((1u << bits) - 1);
  uint32_t out = 0;
  for (size_t i = 0; i < bits / 8; i++) out |= static_cast<uint32_t>(row[x * bits / 8 + i]) << (8 * i);
  return out;
}

}  // namespace

Image decode_bmp(std::span<const uint8_t> file, std::string_view what) {
  const Bitmap b = read_header(file, what);
  ByteReader start(file.subspan(10), std::string(what));
  const auto offset = start.value<uint32_t>();
  const std::span<const uint8_t> data = file.subspan(std::min<size_t>(offset, file.size()));
  TG_CHECK(FormatError, b.width > 0 && b.height > 0 && b.height <= kMaxPixels / b.width, what, ": got ", b.width, " x ",
           b.height, " pixels, expected 1 to ", kMaxPixels);
  const size_t stride = (b.bits * static_cast<size_t>(b.width) + 31) / 32 * 4;
  TG_CHECK(FormatError, data.size() / stride >= static_cast<size_t>(b.height), what, ": got ", data.size(),
           " bytes of pixels, expected ", stride * static_cast<size_t>(b.height));
  Image out = blank_image(b.height, b.width, what, 4);
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < b.height; y++) {
    const std::span<const uint8_t> row = data.subspan(stride * static_cast<size_t>(b.from_top ? y : b.height - 1 - y));
    for (size_t x = 0; x < static_cast<size_t>(b.width); x++, to += 4) {
      const uint32_t p = pixel_of(row, x, b.bits);
      TG_CHECK(FormatError, b.bits > 8 || p < b.palette.size(), what, ": got color ", p, " of a palette of ",
               b.palette.size());
      for (size_t c = 0; c < 3; c++) to[c] = b.bits > 8 ? b.fields[c].of(p, 0) : b.palette[p][c];
      to[3] = b.bits > 8 ? b.fields[3].of(p, 255) : 255;
    }
  }
  return over_white(out, what);
}

}  // namespace tg::io
