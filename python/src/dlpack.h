/// \file DLPack: the structures that array libraries exchange, and the types of elements they name.
#pragma once
#include <nanobind/ndarray.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "bind.h"
#include "tinygrad/base/host_bytes.h"

namespace tg::python::dlpack {

/// An array on its way, in the layout that the standard prescribes.
struct Managed {
  nb::dlpack::dltensor array;
  void* context;
  void (*deleter)(Managed*);
};
/// The same since version 1 of the standard.
struct ManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  nb::dlpack::dltensor array;
};
inline constexpr uint32_t kMajor = 1, kMinor = 1;
enum Flag : uint64_t { kReadOnly = 1, kIsCopied = 2 };

/// Returns the type of elements; nothing for types and widths that tensors do not have.
std::optional<DType> dtype_from(nb::dlpack::dtype d);
/// Returns the name of a type; DTypeError for one that the standard does not name.
nb::dlpack::dtype dtype_to(DType d);

/// Memory of an array, seen as elements of a type and a shape.
struct Array {
  HostBytes memory;  ///< of imports: it begins at the first element, and its size is not known
  DType dtype;
  std::vector<int64_t> shape, strides;  ///< strides in elements

  bool is_empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }
};
/// Takes an array out of a capsule, which is used up. BufferError for a capsule that was used, for another version of
/// the standard and for malformed arrays, DTypeError for types that tensors do not have, DeviceError for memory that is
/// not the host's.
Array take(nb::handle capsule);
/// Returns a capsule with the array, row-major.
nb::object give(const Array& array, bool versioned);

}  // namespace tg::python::dlpack
