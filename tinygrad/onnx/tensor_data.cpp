/// \file Elements of tensors in ONNX files, in the form that tensors store.
#include "tinygrad/onnx/tensor_data.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::onnx {
namespace {

struct TypeRow {
  const char* name;
  std::optional<DType> storage;
  int packed;
};
const TypeRow kTypes[] = {
    {"UNDEFINED", {}, 0},
    {"FLOAT", dtypes::float32, 0},
    {"UINT8", dtypes::uint8, 0},
    {"INT8", dtypes::int8, 0},
    {"UINT16", dtypes::uint16, 0},
    {"INT16", dtypes::int16, 0},
    {"INT32", dtypes::int32, 0},
    {"INT64", dtypes::int64, 0},
    {"STRING", {}, 0},
    {"BOOL", dtypes::bool_, 0},
    {"FLOAT16", dtypes::float16, 0},
    {"DOUBLE", dtypes::float64, 0},
    {"UINT32", dtypes::uint32, 0},
    {"UINT64", dtypes::uint64, 0},
    {"COMPLEX64", {}, 0},
    {"COMPLEX128", {}, 0},
    {"BFLOAT16", dtypes::bfloat16, 0},
    {"FLOAT8E4M3FN", dtypes::fp8e4m3, 0},
    {"FLOAT8E4M3FNUZ", dtypes::fp8e4m3fnuz, 0},
    {"FLOAT8E5M2", dtypes::fp8e5m2, 0},
    {"FLOAT8E5M2FNUZ", dtypes::fp8e5m2fnuz, 0},
    {"UINT4", dtypes::uint8, 4},
    {"INT4", dtypes::int8, 4},
    {"FLOAT4E2M1", dtypes::float32, 4},
    {"FLOAT8E8M0", dtypes::float32, 0},
    {"UINT2", dtypes::uint8, 2},
    {"INT2", dtypes::int8, 2},
};

const TypeRow* row_of(ElemType t) {
  const auto i = static_cast<int32_t>(t);
  return i >= 0 && i < static_cast<int32_t>(ElemType::kCount) ? &kTypes[i] : nullptr;
}

template <class T> std::span<std::byte> put(std::span<std::byte> at, T v) {
  std::memcpy(at.data(), &v, sizeof v);
  return at.subspan(sizeof v);
}

/// Returns element `i` of several in a byte, the first in its lowest bits.
uint8_t packed_code(std::span<const std::byte> raw, int bits, size_t i) {
  const size_t per_byte = 8 / static_cast<size_t>(bits);
  return static_cast<uint8_t>(static_cast<uint8_t>(raw[i / per_byte]) >> (i % per_byte * static_cast<size_t>(bits))) &
         static_cast<uint8_t>((1 << bits) - 1);
}

/// Writes the stored form of one code of a type that is stored wider.
std::span<std::byte> put_code(std::span<std::byte> at, ElemType t, uint8_t code) {
  switch (t) {
    case ElemType::kInt4: return put(at, static_cast<int8_t>(static_cast<int8_t>(code << 4) >> 4));
    case ElemType::kInt2: return put(at, static_cast<int8_t>(static_cast<int8_t>(code << 6) >> 6));
    case ElemType::kFloat4E2M1: return put(at, float4_value(code));
    case ElemType::kFloat8E8M0: return put(at, e8m0_value(code));
    default: return put(at, code);
  }
}

/// Returns `count` elements whose codes are in bytes.
HostBytes widened(ElemType t, std::span<const std::byte> codes, size_t count) {
  const int bits = packed_bits(t);
  return HostBytes::made_by(count * static_cast<size_t>(storage_dtype(t)->itemsize()), [&](std::span<std::byte> out) {
    for (size_t i = 0; i < count; i++)
      out = put_code(out, t, bits ? packed_code(codes, bits, i) : static_cast<uint8_t>(codes[i]));
  });
}

/// Writes an integer of a typed field as an element.
std::span<std::byte> put_integer(std::span<std::byte> at, int size, int64_t v) {
  switch (size) {
    case 1: return put(at, static_cast<int8_t>(v));
    case 2: return put(at, static_cast<int16_t>(v));
    case 4: return put(at, static_cast<int32_t>(v));
    default: return put(at, v);
  }
}

/// Returns the elements of the field that the type uses.
HostBytes from_typed(const TensorProto& t, const TensorFields& f, size_t count) {
  if (!is_stored_raw(t.type)) {  // bytes with codes, as integers
    std::vector<std::byte> codes;
    for (const int64_t v : f.ints) codes.push_back(static_cast<std::byte>(v));
    const size_t bits = packed_bits(t.type) ? static_cast<size_t>(packed_bits(t.type)) : 8;
    TG_CHECK(FormatError, codes.size() == (count * bits + 7) / 8, "int32_data has ", codes.size(), " bytes for ", count,
             " elements");
    return widened(t.type, codes, count);
  }
  const DType d = number_dtype(t.type);
  const size_t have = t.type == ElemType::kFloat    ? f.floats.size()
                      : t.type == ElemType::kDouble ? f.doubles.size()
                                                    : f.ints.size();
  TG_CHECK(FormatError, have == count, "has ", have, " elements of type ", elem_name(t.type), ", expected ", count);
  return HostBytes::made_by(count * static_cast<size_t>(d.itemsize()), [&](std::span<std::byte> out) {
    for (size_t i = 0; i < count; i++) {
      if (t.type == ElemType::kFloat) out = put(out, f.floats[i]);
      else if (t.type == ElemType::kDouble) out = put(out, f.doubles[i]);
      else out = put_integer(out, d.itemsize(), f.ints[i]);
    }
  });
}

}  // namespace

std::string elem_name(ElemType t) {
  const TypeRow* row = row_of(t);
  return row ? row->name : str("type ", static_cast<int32_t>(t));
}
std::optional<DType> storage_dtype(ElemType t) {
  const TypeRow* row = row_of(t);
  return row ? row->storage : std::nullopt;
}
DType number_dtype(ElemType t) {
  const std::optional<DType> d = storage_dtype(t);
  TG_CHECK(FormatError, d, "got elements of type ", elem_name(t), ", expected numbers");
  return *d;
}
int packed_bits(ElemType t) {
  const TypeRow* row = row_of(t);
  return row ? row->packed : 0;
}
bool is_stored_raw(ElemType t) { return packed_bits(t) == 0 && t != ElemType::kFloat8E8M0; }
ElemType elem_type_of(DType d) {
  for (int32_t i = 0; i < static_cast<int32_t>(ElemType::kUInt4); i++)
    if (kTypes[i].storage == d) return static_cast<ElemType>(i);
  throw DTypeError(str("[onnx] got ", d, ", expected a type that ONNX has"));
}

/// Most elements of a tensor: those of any type have bits that an int64 counts.
constexpr int64_t kMostElements = INT64_MAX / 64;

int64_t TensorProto::count() const {
  int64_t n = 1;
  for (const int64_t d : dims)
    TG_CHECK(FormatError, !__builtin_mul_overflow(n, d, &n) && n <= kMostElements,
             "dims have more elements than a tensor can have");
  return n;
}

float float4_value(uint8_t code) {
  constexpr float kValues[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const float v = kValues[code & 7];
  return code & 8 ? -v : v;
}
float e8m0_value(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, static_cast<int>(code) - 127);
}

void decode_tensor(TensorProto& t, const TensorFields& f, const std::shared_ptr<const void>& owner) {
  const auto count = static_cast<size_t>(t.count());
  if (t.type == ElemType::kString) {
    TG_CHECK(FormatError, t.strings.size() == count, "string_data has ", t.strings.size(), " texts, expected ", count);
    return;
  }
  TG_CHECK(FormatError, t.strings.empty(), "has texts, but elements of type ", elem_name(t.type));
  const std::optional<DType> d = storage_dtype(t.type);
  TG_CHECK(FormatError, d, "data_type is ", elem_name(t.type), ", expected a type of numbers or texts");
  if (!f.raw) {
    t.bytes = from_typed(t, f, count);
    return;
  }
  const auto raw = std::as_bytes(std::span(f.raw->data(), f.raw->size()));
  const size_t bits = packed_bits(t.type) ? static_cast<size_t>(packed_bits(t.type))
                                          : static_cast<size_t>(is_stored_raw(t.type) ? d->itemsize() : 1) * 8;
  TG_CHECK(FormatError, raw.size() == (count * bits + 7) / 8, "raw_data has ", raw.size(), " bytes, expected ", count,
           " elements of type ", elem_name(t.type));
  t.bytes = is_stored_raw(t.type) ? HostBytes{raw, owner, HostBytes::Access::kReadOnly} : widened(t.type, raw, count);
}

Tensor tensor_of(const TensorProto& t) {
  const DType d = number_dtype(t.type);
  const Shape shape{std::span<const int64_t>(t.dims)};
  if (t.bytes.bytes.empty()) return Tensor::zeros(shape, {.dtype = d});
  const bool aligned = reinterpret_cast<uintptr_t>(t.bytes.bytes.data()) % static_cast<uintptr_t>(d.itemsize()) == 0;
  if (aligned) return from_host_bytes(t.bytes, shape, d);
  const HostBytes copy = HostBytes::made_by(t.bytes.bytes.size(), [&](std::span<std::byte> out) {
    std::memcpy(out.data(), t.bytes.bytes.data(), out.size());
  });
  return from_host_bytes(copy, shape, d);
}

}  // namespace tg::onnx
