/// \file Descriptors and swizzle of matrices in the memory of a group.
#include "tinygrad/target/shared_matrix.h"

#include <cstdio>

#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr int kLeadingBit = 16, kStrideBit = 32, kSwizzleBit = 62;
constexpr uint64_t kSwizzle128 = 1, kField = kMatrixField;

uint64_t field(int64_t bytes) { return static_cast<uint64_t>(bytes) / kMatrixPart & kField; }
int64_t bytes_of(uint64_t descriptor, int bit) {
  return static_cast<int64_t>(descriptor >> bit & kField) * kMatrixPart;
}
}  // namespace

uint64_t SharedMatrix::descriptor(int64_t address) const {
  return field(address) | field(leading) << kLeadingBit | field(stride) << kStrideBit | kSwizzle128 << kSwizzleBit;
}

int64_t SharedMatrix::byte_of(uint64_t descriptor, bool across, int64_t i, int64_t k, int64_t itemsize) {
  TG_ASSERT(descriptor >> kSwizzleBit == kSwizzle128, "a matrix without rows of 128 bytes: ", descriptor);
  const int64_t each = kMatrixRow / itemsize, row = across ? k : i, within = across ? i % each : k,
                byte = bytes_of(descriptor, 0) + (across ? i / each * bytes_of(descriptor, kLeadingBit) : 0) +
                       row / kMatrixRows * bytes_of(descriptor, kStrideBit) + row % kMatrixRows * kMatrixRow +
                       within * itemsize;
  return byte ^ (byte / kMatrixRow % kMatrixRows * kMatrixPart);  // of addresses: bits 4 to 6 by bits 7 to 9
}

std::string SharedMatrix::text() const { return str(across ? "mn " : "k ", leading, " ", stride); }

SharedMatrix SharedMatrix::from_text(std::string_view text) {
  SharedMatrix m;
  m.across = text.starts_with("mn ");
  long long leading = 0, stride = 0;
  const std::string numbers(text.substr(text.find(' ') + 1));
  TG_ASSERT(std::sscanf(numbers.c_str(), "%lld %lld", &leading, &stride) == 2, "no matrix: ", text);
  m.leading = leading;
  m.stride = stride;
  return m;
}

}  // namespace tg
