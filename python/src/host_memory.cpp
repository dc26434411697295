#include "host_memory.h"

#include <mutex>

#include "casters.h"
#include "interrupt.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::python {

const char* buffer_format(DType d) {
  // clang-format off
  switch (strong_dtype(d).id()) {
    case DTypeId::kBool: return "?";
    case DTypeId::kInt8: return "b";
    case DTypeId::kUInt8: return "B";
    case DTypeId::kInt16: return "h";
    case DTypeId::kUInt16: return "H";
    case DTypeId::kInt32: return "i";
    case DTypeId::kUInt32: return "I";
    case DTypeId::kInt64: return "q";
    case DTypeId::kUInt64: return "Q";
    case DTypeId::kFloat16: return "e";
    case DTypeId::kFloat32: return "f";
    case DTypeId::kFloat64: return "d";
    default: return nullptr;
  }
  // clang-format on
}

HostMemory::HostMemory(HostBytes memory, DType dtype, const std::vector<int64_t>& shape, bool writable)
    : memory_(std::move(memory)),
      format_(buffer_format(dtype)),
      itemsize_(strong_dtype(dtype).itemsize()),
      shape_(shape.begin(), shape.end()),
      strides_(shape.size()),
      writable_(writable) {
  if (!format_) throw nb::type_error(str("no buffer format for ", dtype, ": cast to float32 first").c_str());
  Py_ssize_t stride = itemsize_;
  for (size_t i = shape_.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= shape_[i];
  }
}
HostMemory::HostMemory(HostBytes memory)
    : HostMemory(memory, dtypes::uint8, {static_cast<int64_t>(memory.bytes.size())},
                 memory.access == HostBytes::Access::kShared) {}

HostMemory HostMemory::of_tensor(const Tensor& t) {
  const DType d = t.stored_dtype();
  const std::vector<int64_t> shape = t.shape().ints();
  if (!buffer_format(d)) throw nb::type_error(str("no buffer format for ", d, ": cast to float32 first").c_str());
  HostBytes memory;
  {
    Unlocked work;
    memory = host_bytes(t);
  }
  const bool writable = memory.access == HostBytes::Access::kShared;
  return {std::move(memory), d, shape, writable};
}

void HostMemory::fill(Py_buffer* view, int flags) {
  const auto wants = [&](int bits) { return (flags & bits) == bits; };
  if (wants(PyBUF_WRITABLE) && !writable_)
    throw nb::buffer_error(
        "[memoryview] got a request for writable memory, but this is a copy or read-only: take "
        "numpy() or data(), or realize the tensor in storage of its own");
  if (wants(PyBUF_F_CONTIGUOUS) && !wants(PyBUF_ANY_CONTIGUOUS) && shape_.size() > 1)
    throw nb::buffer_error("[memoryview] got a request for column-major memory, but tensors are row-major");
  static char empty;
  view->buf = memory_.bytes.empty() ? static_cast<void*>(&empty) : const_cast<std::byte*>(memory_.bytes.data());
  view->len = static_cast<Py_ssize_t>(memory_.bytes.size());
  view->itemsize = itemsize_;
  view->readonly = !writable_;
  view->ndim = static_cast<int>(shape_.size());
  view->format = wants(PyBUF_FORMAT) ? const_cast<char*>(format_) : nullptr;
  view->shape = wants(PyBUF_ND) ? shape_.data() : nullptr;
  view->strides = wants(PyBUF_STRIDES) ? strides_.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
}

namespace {
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    nb::cast<HostMemory&>(nb::handle(self)).fill(view, flags);
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
    return -1;
  }
  Py_INCREF(self);
  view->obj = self;
  return 0;
}
PyType_Slot host_memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

/// What waits for the interpreter's loop to let go of it.
class Graveyard {
 public:
  static void bury(std::function<void()> release) {
    {
      std::lock_guard lock(mutex());
      list().push_back(std::move(release));
    }
    Py_AddPendingCall(
        [](void*) {
          drain();
          return 0;
        },
        nullptr);
  }

 private:
  static void drain() {
    std::vector<std::function<void()>> dead;
    {
      std::lock_guard lock(mutex());
      dead.swap(list());
    }
    for (const auto& release : dead) release();
  }
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<std::function<void()>>& list() {
    static std::vector<std::function<void()>> l;
    return l;
  }
};
}  // namespace

std::shared_ptr<const void> released_later(std::function<void()> release) {
  struct Owner {
    std::function<void()> release;
    ~Owner() { Graveyard::bury(std::move(release)); }
  };
  return std::make_shared<const Owner>(std::move(release));
}

HostBytes memory_of_object(nb::handle object) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_CONTIG) != 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_CONTIG_RO) != 0) throw nb::python_error();
  }
  Py_buffer* v = view.release();
  HostBytes out{{static_cast<const std::byte*>(v->buf), static_cast<size_t>(v->len)},
                released_later([v] {
                  PyBuffer_Release(v);
                  delete v;
                }),
                v->readonly ? HostBytes::Access::kReadOnly : HostBytes::Access::kShared};
  return out;
}

void bind_host_memory(nb::module_& m) {
  nb::class_<HostMemory>(m, "HostMemory", nb::type_slots(host_memory_slots),
                         "Memory of a tensor or buffer, for memoryview(). It stays as it is while a view of it lives.");
}

}  // namespace tg::python
