/// \file Q4_0 and Q8_0.
#include "apps/tg/quantized.h"

#include "tinygrad/base/dtype.h"
#include "tinygrad/base/hash.h"

namespace tg::bench {
namespace {

Tensor scale(const Tensor& blocks) { return blocks(Ellipsis, Slice(0, 2)).bitcast(dtypes::float16).to_float(); }

Tensor unpack_q4_0(const Tensor& blocks) {
  const Tensor q = blocks(Ellipsis, Slice(2, 18));
  return (q.bitwise_and(15).cat(q.rshift(4), -1).to_float() - 8) * scale(blocks);
}
Tensor unpack_q8_0(const Tensor& blocks) {
  return blocks(Ellipsis, Slice(2, 34)).bitcast(dtypes::int8).to_float() * scale(blocks);
}

}  // namespace

const QuantizedFormat kQ4_0{
    18, unpack_q4_0, [](const uint8_t* b, size_t i) { return (i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4) - 8; }};
const QuantizedFormat kQ8_0{34, unpack_q8_0,
                            [](const uint8_t* b, size_t i) { return static_cast<int>(static_cast<int8_t>(b[2 + i])); }};

double QuantizedFormat::element(std::span<const uint8_t> blocks, size_t at) const {
  const uint8_t* b = blocks.data() + at / kElements * static_cast<size_t>(bytes);
  return integer(b, at % kElements) * static_cast<double>(half_to_float(static_cast<uint16_t>(b[0] | b[1] << 8)));
}

std::vector<uint8_t> random_blocks(const QuantizedFormat& format, size_t count, uint64_t seed) {
  const auto size = static_cast<size_t>(format.bytes);
  std::vector<uint8_t> out(count * size);
  for (size_t i = 0; i < out.size(); i++) {
    const auto byte = static_cast<uint8_t>(mix64(seed * 0x9E3779B97F4A7C15 + i + 1) >> 56);
    out[i] = i % size == 1 ? 0x28 | (byte & 3) : byte;  // the exponent of a scale is -5
  }
  return out;
}

}  // namespace tg::bench
