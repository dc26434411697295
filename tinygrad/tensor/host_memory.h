/// \file Values of tensors as host memory, and host memory as tensors. docs/memory.md has the table of exports, imports
/// and lifetimes.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "tinygrad/base/host_bytes.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {

/// Returns the elements, row-major, computing them: the storage of the tensor itself where it holds them like that in
/// host memory, else a copy. The storage is kShared, or kReadOnly where it is a file or was imported as such. It is
/// given to no other tensor while the result lives, whatever `t` becomes. Throws what realize() throws, and JitError
/// inside of a function that is being captured.
HostBytes host_bytes(const Tensor& t);
/// Returns a copy of the elements, row-major. It is consistent: a run of another thread that overwrites them is over or
/// has not begun. Errors as host_bytes.
HostBytes copied_bytes(const Tensor& t);
/// Calls `use` with the elements, row-major, which no run of another thread overwrites meanwhile. Errors as host_bytes.
void read_bytes(const Tensor& t, const std::function<void(std::span<const std::byte>)>& use);

/// Returns a tensor on the CPU over host memory, which is not copied and lives as long as the tensor's storage does.
/// Writes to the tensor go there, unless it is kReadOnly: the first one moves the tensor, and all that view it, to a
/// copy. ShapeError when the bytes do not fill the shape, DTypeError for a type without a size, ValueError for an
/// address that is no multiple of the element size.
Tensor from_host_bytes(HostBytes memory, const Shape& shape, DType dtype);

}  // namespace tg
