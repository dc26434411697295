#include "dlpack.h"

#include <algorithm>

#include "casters.h"
#include "host_memory.h"

namespace tg::python::dlpack {
namespace {

using Code = nb::dlpack::dtype_code;

/// The types of elements that both sides have.
struct Row {
  DType dtype;
  Code code;
  uint8_t bits;
};
constexpr Row kTypes[] = {
    {dtypes::bool_, Code::Bool, 8},
    {dtypes::int8, Code::Int, 8},
    {dtypes::int16, Code::Int, 16},
    {dtypes::int32, Code::Int, 32},
    {dtypes::int64, Code::Int, 64},
    {dtypes::uint8, Code::UInt, 8},
    {dtypes::uint16, Code::UInt, 16},
    {dtypes::uint32, Code::UInt, 32},
    {dtypes::uint64, Code::UInt, 64},
    {dtypes::float16, Code::Float, 16},
    {dtypes::float32, Code::Float, 32},
    {dtypes::float64, Code::Float, 64},
    {dtypes::bfloat16, Code::Bfloat, 16},
    {dtypes::fp8e4m3, Code::Float8_E4M3FN, 8},
    {dtypes::fp8e4m3fnuz, Code::Float8_E4M3FNUZ, 8},
    {dtypes::fp8e5m2, Code::Float8_E5M2, 8},
    {dtypes::fp8e5m2fnuz, Code::Float8_E5M2FNUZ, 8},
};

constexpr const char* kName = "dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";

/// Describes what lies in a capsule, whichever version it has.
Array described(const nb::dlpack::dltensor& a, uint64_t flags) {
  const std::optional<DType> d = dtype_from(a.dtype);
  TG_CHECK(DTypeError, d, "[from_dlpack] got an element type of code ", static_cast<int>(a.dtype.code), ", ",
           static_cast<int>(a.dtype.bits), " bits and ", a.dtype.lanes,
           " lanes, expected bool, an integer or a float of 8 to 64 bits in one lane");
  TG_CHECK(DeviceError, a.device.device_type == nb::device::cpu::value,
           "[from_dlpack] got an array on a device, expected host memory: move it first");
  const auto fails = [](const char* what) {
    throw nb::buffer_error(str("[from_dlpack] got an array with ", what).c_str());
  };
  if (a.ndim < 0 || a.ndim > 64 || (a.ndim > 0 && !a.shape)) fails("no shape of 0 to 64 axes");
  Array out{{}, *d, {}, {}};
  if (a.ndim > 0) out.shape.assign(a.shape, a.shape + a.ndim);
  if (std::any_of(out.shape.begin(), out.shape.end(), [](int64_t n) { return n < 0; })) fails("a negative size");
  if (a.strides && a.ndim > 0) out.strides.assign(a.strides, a.strides + a.ndim);
  else {
    out.strides.resize(out.shape.size());
    int64_t stride = 1;
    for (size_t i = out.shape.size(); i-- > 0; stride *= out.shape[i]) out.strides[i] = stride;
  }
  if (!a.data && !out.is_empty()) fails("elements but no memory");
  const auto* begin = a.data ? static_cast<const std::byte*>(a.data) + a.byte_offset : nullptr;
  out.memory.bytes = {begin, 0};
  out.memory.access = flags & kReadOnly   ? HostBytes::Access::kReadOnly
                      : flags & kIsCopied ? HostBytes::Access::kCopy
                                          : HostBytes::Access::kShared;
  return out;
}

template <class M> std::shared_ptr<const void> owner_of(M* managed) {
  return released_later([managed] {
    if (managed->deleter) managed->deleter(managed);
  });
}

/// What an exported array needs as long as it lives.
template <class M> struct Exported {
  M managed{};
  HostBytes memory;
  std::vector<int64_t> shape, strides;
};

/// Makes a capsule that frees the array unless somebody has taken it out.
template <class M> nb::object capsule_of(const Array& a, const char* name) {
  auto e = std::make_unique<Exported<M>>();
  e->memory = a.memory;
  e->shape = a.shape;
  e->strides = a.strides;
  M& m = e->managed;
  m.array = {const_cast<std::byte*>(a.memory.bytes.data()),
             {nb::device::cpu::value, 0},
             static_cast<int32_t>(a.shape.size()),
             dtype_to(a.dtype),
             e->shape.data(),
             e->strides.data(),
             0};
  m.deleter = [](M* managed) { delete static_cast<Exported<M>*>(managed->context); };
  if constexpr (std::is_same_v<M, ManagedVersioned>) {
    m.major = kMajor;
    m.minor = kMinor;
    if (a.memory.access == HostBytes::Access::kReadOnly) m.flags |= kReadOnly;
    if (a.memory.access == HostBytes::Access::kCopy) m.flags |= kIsCopied;
  }
  m.context = e.get();
  PyObject* capsule = PyCapsule_New(&m, name, [](PyObject* self) {
    const char* now = PyCapsule_GetName(self);
    if (std::string_view(now) != kName && std::string_view(now) != kVersionedName) return;  // it was taken out
    auto* managed = static_cast<M*>(PyCapsule_GetPointer(self, now));
    managed->deleter(managed);
  });
  if (!capsule) throw nb::python_error();
  e.release();
  return nb::steal(capsule);
}

}  // namespace

std::optional<DType> dtype_from(nb::dlpack::dtype d) {
  if (d.lanes != 1) return {};
  for (const Row& r : kTypes)
    if (static_cast<uint8_t>(r.code) == d.code && r.bits == d.bits) return r.dtype;
  return {};
}

nb::dlpack::dtype dtype_to(DType d) {
  for (const Row& r : kTypes)
    if (r.dtype == strong_dtype(d)) return {static_cast<uint8_t>(r.code), r.bits, 1};
  throw DTypeError(str("[dlpack] got a tensor of ", d, ", expected a type DLPack has: cast first"));
}

Array take(nb::handle capsule) {
  PyObject* c = capsule.ptr();
  if (PyCapsule_IsValid(c, kVersionedName)) {
    auto* m = static_cast<ManagedVersioned*>(PyCapsule_GetPointer(c, kVersionedName));
    if (m->major != kMajor)
      throw nb::buffer_error(
          str("[from_dlpack] got version ", m->major, ".", m->minor, " of DLPack, expected ", kMajor).c_str());
    Array out = described(m->array, m->flags);
    if (PyCapsule_SetName(c, "used_dltensor_versioned") != 0) throw nb::python_error();
    out.memory.owner = owner_of(m);
    return out;
  }
  if (!PyCapsule_IsValid(c, kName))
    throw nb::buffer_error(
        "[from_dlpack] got a capsule that was used before, expected a new one: DLPack arrays are "
        "taken once");
  auto* m = static_cast<Managed*>(PyCapsule_GetPointer(c, kName));
  Array out = described(m->array, 0);
  if (PyCapsule_SetName(c, "used_dltensor") != 0) throw nb::python_error();
  out.memory.owner = owner_of(m);
  return out;
}

nb::object give(const Array& array, bool versioned) {
  return versioned ? capsule_of<ManagedVersioned>(array, kVersionedName) : capsule_of<Managed>(array, kName);
}

}  // namespace tg::python::dlpack
