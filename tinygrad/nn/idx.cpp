/// \file IDX: two zero bytes, type code, number of dimensions, each dimension as 32 bits, the elements; all big-endian.
#include "tinygrad/nn/idx.h"

#include <algorithm>
#include <bit>

#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gzip.h"

namespace tg::nn {
namespace {

struct ElementType {
  uint8_t code;
  DType dtype;
  uint64_t bytes;
};
constexpr ElementType kTypes[] = {{0x08, dtypes::uint8, 1}, {0x09, dtypes::int8, 1},    {0x0B, dtypes::int16, 2},
                                  {0x0C, dtypes::int32, 4}, {0x0D, dtypes::float32, 4}, {0x0E, dtypes::float64, 8}};
constexpr size_t kMaxDims = 8;

IdxArray parse_plain(std::span<const uint8_t> bytes, std::string_view name) {
  TG_CHECK(FormatError, bytes.size() >= 4, "[idx] ", name, ": got ", bytes.size(), " bytes, expected a header");
  const auto type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const ElementType& t) { return t.code == bytes[2]; });
  const size_t ndim = bytes[3];
  TG_CHECK(FormatError, bytes[0] == 0 && bytes[1] == 0 && type != std::end(kTypes), "[idx] ", name,
           ": not an IDX file");
  TG_CHECK(FormatError, ndim >= 1 && ndim <= kMaxDims, "[idx] ", name, ": got ", ndim, " dimensions, expected 1 to ",
           kMaxDims);
  TG_CHECK(FormatError, bytes.size() >= 4 + 4 * ndim, "[idx] ", name, ": got ", bytes.size(),
           " bytes, expected a header of ", 4 + 4 * ndim);
  IdxArray array{type->dtype, {}, {}};
  uint64_t need = type->bytes;
  bool overflow = false, empty = false;
  for (size_t i = 0; i < ndim; i++) {
    const uint8_t* p = bytes.data() + 4 + 4 * i;
    const uint64_t size = uint64_t{p[0]} << 24 | p[1] << 16 | p[2] << 8 | p[3];
    array.shape.push_back(static_cast<int64_t>(size));
    if (size == 0) empty = true;
    else overflow |= __builtin_mul_overflow(need, size, &need);
  }
  if (empty) {
    need = 0;
    overflow = false;
  }
  const std::span<const uint8_t> body = bytes.subspan(4 + 4 * ndim);
  TG_CHECK(FormatError, !overflow, "[idx] ", name, ": the sizes in its header overflow");
  TG_CHECK(FormatError, body.size() == need, "[idx] ", name, ": got ", body.size(), " bytes of elements, expected ",
           need);
  array.data.assign(body.begin(), body.end());
  if (std::endian::native == std::endian::little && type->bytes > 1)
    for (size_t i = 0; i < array.data.size(); i += type->bytes)
      std::reverse(array.data.begin() + i, array.data.begin() + i + type->bytes);
  return array;
}

}  // namespace

IdxArray parse_idx(std::span<const uint8_t> bytes, std::string_view name, uint64_t max_bytes) {
  return io::is_gzip(bytes) ? parse_plain(io::gunzip(bytes, max_bytes, name), name) : parse_plain(bytes, name);
}

IdxArray read_idx(const std::filesystem::path& path, uint64_t max_bytes) {
  return parse_idx(io::read_file(path, max_bytes), path.string(), max_bytes);
}

}  // namespace tg::nn
