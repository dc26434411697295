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

/// A piece of at most what zlib's 32 bits count.
uInt piece(size_t bytes) { return static_cast<uInt>(std::min<uint64_t>(bytes, std::numeric_limits<uInt>::max())); }

/// Inflates from `in` into `out`, to the end of one of them or of a member; both move on. Returns zlib's status.
int inflate_piece(z_stream& z, std::span<const uint8_t>& in, std::span<uint8_t>& out) {
  const uInt give = piece(in.size()), room = piece(out.size());
  z.next_in = const_cast<Bytef*>(in.data());
  z.avail_in = give;
  z.next_out = out.data();
  z.avail_out = room;
  const int status = inflate(&z, Z_NO_FLUSH);
  in = in.subspan(give - z.avail_in);
  out = out.subspan(room - z.avail_out);
  return status;
}

void check_progress(const z_stream& z, int status, bool moved, size_t at, std::string_view name) {
  TG_CHECK(FormatError, status == Z_OK || status == Z_BUF_ERROR, "[gunzip] ", name, ": corrupt at byte ", at, ": ",
           z.msg ? z.msg : "zlib error");
  TG_CHECK(FormatError, moved, "[gunzip] ", name, ": truncated after ", at, " bytes");
}

}  // namespace

bool is_gzip(std::span<const uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

std::vector<uint8_t> gunzip(std::span<const uint8_t> bytes, uint64_t max_bytes, std::string_view name) {
  TG_CHECK(FormatError, is_gzip(bytes), "[gunzip] ", name, ": no gzip header");
  std::vector<uint8_t> out(std::min<uint64_t>(max_bytes, 4 * uint64_t{bytes.size()} + 64));
  std::span<const uint8_t> in = bytes;
  size_t out_at = 0;
  Inflater inflater;
  for (;;) {
    if (out_at == out.size() && out.size() < max_bytes)
      out.resize(std::min<uint64_t>(max_bytes, 2 * uint64_t{out.size()}));
    uint8_t overflow;  // one byte past the limit tells "exactly full" from "too large"
    const bool full = out_at == out.size();
    std::span<uint8_t> room = full ? std::span(&overflow, 1) : std::span(out).subspan(out_at);
    const size_t had = in.size(), empty = room.size();
    const int status = inflate_piece(inflater.z, in, room);
    const size_t made = empty - room.size();
    TG_CHECK(FormatError, !full || made == 0, "[gunzip] ", name, ": got more than ", max_bytes,
             " bytes of content, expected at most that");
    out_at += made;
    if (status == Z_STREAM_END) {
      if (in.empty()) break;
      TG_CHECK(FormatError, is_gzip(in), "[gunzip] ", name, ": ", in.size(), " bytes follow the compressed data");
      inflateReset(&inflater.z);
      continue;
    }
    check_progress(inflater.z, status, in.size() != had || made != 0, bytes.size() - in.size(), name);
  }
  out.resize(out_at);
  return out;
}

}  // namespace tg::io
