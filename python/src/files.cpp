/// \file Files of tensors and archives.
#include <nanobind/nanobind.h>

#include <unordered_map>

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tinygrad/io/safetensors.h"
#include "tinygrad/nn/checkpoint.h"
#include "tinygrad/nn/extract.h"
#include "tinygrad/nn/fs.h"
#include "tinygrad/nn/npy_file.h"
#include "tinygrad/nn/state_file.h"
#include "tinygrad/nn/torch_load.h"
#include "tinygrad/nn/world_file.h"

namespace tg::python {

namespace {

using nn::TorchValue;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// A tensor of bytes, or the path of a file.
nn::ByteSource source_of(nb::handle file, std::string_view op) {
  if (nb::isinstance<Tensor>(file)) return nn::ByteSource::of_tensor(nb::cast<Tensor>(file), op);
  return nn::ByteSource::of_file(nb::cast<std::string>(file), op);
}

/// Names in files need not be UTF-8.
nb::object text_object(std::string_view s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogateescape"));
}

nb::dict dict_of(const nn::StateDict& tensors) {
  nb::dict out;
  for (const auto& [name, t] : tensors) out[text_object(name)] = t;
  return out;
}

nn::StateDict state_of(const NamedTensors& tensors) {
  nn::StateDict d;
  for (const auto& [name, t] : tensors) d.emplace_back(name, t);
  return d;
}

/// Python's object for a value whose parts have theirs.
class PythonValues {
 public:
  nb::object of(const TorchValue& root) {
    std::vector<TorchValue> open{root};
    while (!open.empty()) {
      const TorchValue v = open.back();
      if (!made_.contains(v.id())) {
        if (push_parts(v, open)) continue;
        made_.emplace(v.id(), object(v));
      }
      open.pop_back();
    }
    return made_.at(root.id());
  }

 private:
  /// Pushes parts that have no object yet; false when there is none.
  bool push_parts(const TorchValue& v, std::vector<TorchValue>& open) const {
    const size_t before = open.size();
    const auto push = [&](const TorchValue& part) {
      if (!made_.contains(part.id())) open.push_back(part);
    };
    if (v.kind() == TorchValue::Kind::kDict)
      for (size_t i = 0; i < v.size(); i++) {
        push(v.entry(i).first);
        push(v.entry(i).second);
      }
    else if (v.kind() >= TorchValue::Kind::kList && v.kind() <= TorchValue::Kind::kSet)
      for (size_t i = 0; i < v.size(); i++) push(v[i]);
    return open.size() > before;
  }
  const nb::object& made(const TorchValue& v) const { return made_.at(v.id()); }
  nb::list parts(const TorchValue& v) const {
    nb::list out;
    for (size_t i = 0; i < v.size(); i++) out.append(made(v[i]));
    return out;
  }
  nb::object object(const TorchValue& v) const {
    using Kind = TorchValue::Kind;
    switch (v.kind()) {
      case Kind::kNone: return nb::none();
      case Kind::kBool: return nb::bool_(v.as_bool());
      case Kind::kInt: return nb::int_(v.as_int());
      case Kind::kLongInt: {
        const std::string_view s = v.as_text();
        return nb::handle(reinterpret_cast<PyObject*>(&PyLong_Type))
            .attr("from_bytes")(nb::bytes(s.data(), s.size()), "little", "signed"_a = true);
      }
      case Kind::kFloat: return nb::float_(v.as_float());
      case Kind::kString: return text_object(v.as_text());
      case Kind::kBytes: return nb::bytes(v.as_text().data(), v.as_text().size());
      case Kind::kList: return parts(v);
      case Kind::kTuple: return nb::tuple(parts(v));
      case Kind::kSet: return nb::steal(PySet_New(parts(v).ptr()));
      case Kind::kTensor: return nb::cast(v.as_tensor());
      case Kind::kOpaque: return nb::str("<") + text_object(v.as_text()) + nb::str(">");
      case Kind::kDict: break;
    }
    nb::dict out;
    for (size_t i = 0; i < v.size(); i++) out[made(v.entry(i).first)] = made(v.entry(i).second);
    return out;
  }

  std::unordered_map<uint32_t, nb::object> made_;
};

/// Runs `f` of a source without the GIL.
template <class F> auto unlocked(nb::handle file, std::string_view op, F f) {
  const nn::ByteSource source = source_of(file, op);
  Unlocked work;
  return f(source);
}

void bind_safetensors(nb::module_& m) {
  m.def("safe_save", [](const NamedTensors& tensors, const std::string& path, const nn::Metadata& metadata) {
    const nn::StateDict d = state_of(tensors);
    Unlocked work;
    nn::safe_save(d, path, metadata);
  });
  m.def("safe_save_sharded", [](const NamedTensors& tensors, const std::string& folder, uint64_t max_bytes,
                                const std::string& name, const nn::Metadata& metadata) {
    const nn::StateDict d = state_of(tensors);
    Unlocked work;
    nn::safe_save_sharded(d, folder, {max_bytes, name, metadata});
  });
  m.def("safe_save_together", [](const NamedTensors& tensors, const std::string& folder, const nn::Metadata& metadata) {
    const nn::StateDict d = state_of(tensors);
    Unlocked work;
    nn::safe_save_together(d, folder, metadata);
  });
  m.def("safe_load", [](nb::object file) {
    if (nb::isinstance<Tensor>(file))
      return dict_of(unlocked(file, "safe_load", [](const nn::ByteSource& s) { return nn::safe_load(s); }));
    const auto path = nb::cast<std::string>(file);
    const auto load = [&] {
      Unlocked work;
      return nn::safe_load(path);
    };
    return dict_of(load());
  });
  // (where the data starts, the header's text)
  m.def("safetensors_header", [](nb::object file, const std::string& op) {
    const nn::ByteSource source = source_of(file, op);
    const std::span<const uint8_t> bytes = source.bytes();
    const io::Safetensors f = io::parse_safetensors(bytes, bytes.size(), source.name());
    return nb::make_tuple(f.data_start, nb::bytes(bytes.data() + 8, f.data_start - 8));
  });
}

void bind_archives(nb::module_& m) {
  m.def("tar_extract", [](nb::object file) {
    return dict_of(unlocked(file, "tar_extract", [](const nn::ByteSource& s) { return nn::tar_extract(s); }));
  });
  m.def("zip_extract", [](nb::object file) {
    return dict_of(unlocked(file, "zip_extract", [](const nn::ByteSource& s) { return nn::zip_extract(s); }));
  });
  m.def("gz_extract", [](nb::object file) {
    return unlocked(file, "gz_extract", [](const nn::ByteSource& s) { return nn::gz_extract(s); });
  });
  nb::class_<nn::TensorIO>(m, "TensorIO")
      .def(nb::init<const Tensor&>())
      .def("read",
           [](nn::TensorIO& t, size_t n) {
             std::vector<uint8_t> out(static_cast<size_t>(std::min<uint64_t>(n, t.size() - t.position())));
             t.read(out);
             return nb::bytes(out.data(), out.size());
           })
      .def("seek",
           [](nn::TensorIO& t, int64_t offset, int whence) {
             TG_CHECK(ValueError, whence >= 0 && whence <= 2, "[TensorIO] got whence ", whence, ", expected 0, 1 or 2");
             return t.seek(offset, static_cast<nn::TensorIO::From>(whence));
           })
      .def("tell", &nn::TensorIO::position);
}

}  // namespace

void bind_files(nb::module_& m) {
  bind_safetensors(m);
  bind_archives(m);
  m.def("torch_load", [](nb::object file, bool keep_opaque) {
    return PythonValues().of(
        unlocked(file, "torch_load", [&](const nn::ByteSource& s) { return nn::torch_load_value(s, keep_opaque); }));
  });
  m.def("npy_load", [](nb::object file) {
    return unlocked(file, "npy_load", [](const nn::ByteSource& s) { return nn::npy_load(s); });
  });
  m.def("npz_load", [](nb::object file) {
    return dict_of(unlocked(file, "npz_load", [](const nn::ByteSource& s) { return nn::npz_load(s); }));
  });
  m.def("npy_save", [](const Tensor& t, const std::string& path) {
    Unlocked work;
    nn::npy_save(t, path);
  });
  m.def("npz_save", [](const NamedTensors& arrays, const std::string& path) {
    const nn::StateDict d = state_of(arrays);
    Unlocked work;
    nn::npz_save(d, path);
  });
  m.def("random_state", &nn::random_state);
  m.def("set_random_state", [](const std::string& state) { nn::set_random_state(state); });
  // what the file was saved with, [(key, text)]
  m.def("safe_metadata", [](const std::string& path) { return nn::safe_metadata(path); });
  m.def(
      "fs_store",
      [](const Tensor& t) {
        nb::gil_scoped_release release;
        return nn::fs_store(t);
      },
      "t"_a);
  m.def(
      "fs_load",
      [](const Tensor& t, int64_t size) {
        nb::gil_scoped_release release;
        return nn::fs_load(t, size);
      },
      "t"_a, "size"_a);
}

}  // namespace tg::python
