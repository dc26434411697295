/// \file Host memory that crosses the border of the extension: to Python through the buffer protocol, and from Python.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bind.h"
#include "tinygrad/base/host_bytes.h"

namespace tg::python {

/// Memory of a tensor or buffer that Python sees as an array. It pins storage, not the tensor it was read from.
class HostMemory {
 public:
  /// The elements of a tensor, in a type that Python has; BufferError for others.
  static HostMemory of_tensor(const Tensor& t);
  /// Bytes without a shape.
  explicit HostMemory(HostBytes memory);
  /// Elements that belong to the holder alone: writes to them are nobody's business.
  HostMemory(HostBytes memory, DType dtype, const std::vector<int64_t>& shape, bool writable);

  /// Fills `view` as the buffer protocol demands for `flags`; BufferError for what it cannot give.
  void fill(Py_buffer* view, int flags);

 private:
  HostBytes memory_;
  const char* format_;
  Py_ssize_t itemsize_;
  std::vector<Py_ssize_t> shape_, strides_;
  bool writable_;
};

/// Returns the format of struct and memoryview; types Python does not know have none.
const char* buffer_format(DType d);

/// Returns an owner that calls `release` when the last copy of it is gone: later, with the GIL, as memory may be let go
/// of while the graph's lock is held, where the GIL must not be taken.
std::shared_ptr<const void> released_later(std::function<void()> release);
/// The contiguous memory of an object with the buffer protocol, exported for the life of this one, which needs the GIL.
class ObjectBytes {
 public:
  ObjectBytes(nb::handle h, bool write) {
    if (PyObject_GetBuffer(h.ptr(), &view_, write ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0) throw nb::python_error();
  }
  ~ObjectBytes() { PyBuffer_Release(&view_); }
  ObjectBytes(const ObjectBytes&) = delete;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)}; }

 private:
  Py_buffer view_;
};
/// Returns the contiguous memory of an object with the buffer protocol, which stays exported while its owner lives.
/// TypeError or BufferError when it has none.
HostBytes memory_of_object(nb::handle object);

}  // namespace tg::python
