/// \file gzip through zlib.
#include "tinygrad/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

struct Inflater {
  z_stream z{};
  Inflater() {
    TG_CHECK(Error, inflateInit2(&z, 16 + MAX_WBITS) == Z_OK, "[gunzip] zlib does not start");
  }  // 16: gzip header and CRC
  ~Inflater() { inflateEnd(&z); }
};

constexpr uint64_t kPiece = std::numeric_limits<uInt>::max();  // zlib counts in 32 bits

}  // namespace

bool is_gzip(std::span<const uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

std::vector<uint8_t> gunzip(std::span<const uint8_t> bytes, uint64_t max_bytes, std::string_view name) {
  TG_CHECK(FormatError, is_gzip(bytes), "[gunzip] ", name, ": no gzip header");
  std::vector<uint8_t> out(std::min<uint64_t>(max_bytes, 4 * uint64_t{bytes.size()} + 64));
  size_t in_at = 0, out_at = 0;
  Inflater inflater;
  z_stream& z = inflater.z;
  for (;;) {
    if (out_at == out.size() && out.size() < max_bytes)
      out.resize(std::min<uint64_t>(max_bytes, 2 * uint64_t{out.size()}));
    uint8_t overflow;  // one byte past the limit tells "exactly full" from "too large"
    const bool full = out_at == out.size();
    z.next_in = const_cast<Bytef*>(bytes.data() + in_at);
    const auto give = static_cast<uInt>(std::min<uint64_t>(bytes.size() - in_at, kPiece));
    z.avail_in = give;
    z.next_out = full ? &overflow : out.data() + out_at;
    const uInt room = full ? 1 : static_cast<uInt>(std::min<uint64_t>(out.size() - out_at, kPiece));
    z.avail_out = room;
    const int status = inflate(&z, Z_NO_FLUSH);
    const size_t took = give - z.avail_in, made = room - z.avail_out;
    TG_CHECK(FormatError, !full || made == 0, "[gunzip] ", name, ": got more than ", max_bytes,
             " bytes of content, expected at most that");
    in_at += took;
    out_at += made;
    if (status == Z_STREAM_END) {
      if (in_at == bytes.size()) break;
      TG_CHECK(FormatError, is_gzip(bytes.subspan(in_at)), "[gunzip] ", name, ": ", bytes.size() - in_at,
               " bytes follow the compressed data");
      inflateReset(&z);
      continue;
    }
    TG_CHECK(FormatError, status == Z_OK || status == Z_BUF_ERROR, "[gunzip] ", name, ": corrupt at byte ", in_at, ": ",
             z.msg ? z.msg : "zlib error");
    TG_CHECK(FormatError, took != 0 || made != 0, "[gunzip] ", name, ": truncated after ", in_at, " bytes");
  }
  out.resize(out_at);
  return out;
}

}  // namespace tg::io
