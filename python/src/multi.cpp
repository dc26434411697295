/// \file Tensors and nodes on several devices.
#include "tinygrad/uop/multi.h"

#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/multi/lower_multi.h"

namespace tg::python {

nb::object device_object(const std::string& device) {
  if (device.empty()) return nb::none();
  if (!is_device_list(device)) return nb::str(device.c_str());
  nb::list names;
  for (const std::string& d : device_names(device)) names.append(nb::str(d.c_str()));
  return nb::tuple(names);
}

namespace {
nb::object axis_object(int axis) { return axis < 0 ? nb::none() : nb::object(nb::int_(axis)); }
/// The list as shard() takes it: one entry, as it may name a mesh.
std::vector<std::string> names_of(const DeviceName& devices) {
  return devices.name.empty() ? std::vector<std::string>() : std::vector{devices.name};
}
int axis_in(UOp u, int axis) {
  const auto n = static_cast<int>(shape_of(u).size());
  TG_CHECK(IndexError, axis >= -n && axis < n, "[shard] got axis ", axis, " for shape ", shape_of(u));
  return axis < 0 ? axis + n : axis;
}
}  // namespace

void bind_tensor_multi(TensorClass& c) {
  c.def(
      "shard",
      [](const Tensor& t, const DeviceName& devices, std::optional<int> axis) {
        return t.shard(names_of(devices), axis);
      },
      "devices"_a, "axis"_a = nb::none(),
      "On several devices: the whole tensor on each, or with `axis` a slice on each.");
  c.def(
      "shard_",
      [](nb::object self, const DeviceName& devices, std::optional<int> axis) {
        nb::cast<Tensor&>(self).shard_(names_of(devices), axis);
        return self;
      },
      "devices"_a, "axis"_a = nb::none(), "shard() in place.");
  c.def("shard_like", &Tensor::shard_like, "y"_a, "On the devices of `y`, sharded as that.");
}

void bind_uop_multi(nb::class_<PyUOp>& c) {
  c.def_prop_ro(
      "axis",
      [](const PyUOp& u) {
        GraphScope g;
        return axis_object(shard_axis(u.get()));
      },
      "The axis along which each of several devices has a slice.");
  c.def_prop_ro(
      "shard_shape",
      [](const PyUOp& u) {
        Shape s;
        std::vector<UOpRef> keep;
        {
          GraphScope g;
          s = shard_shape(u.get());
          for (const SInt& d : s)
            if (d.symbolic()) keep.emplace_back(d.uop());
        }
        return to_python(s);
      },
      "Shape of what each device has.");
  c.def_prop_ro(
      "bounds",
      [](const PyUOp& u) {
        int64_t size = 0, count = 0;
        {
          GraphScope g;
          const int a = shard_axis(u.get());
          TG_CHECK(ShapeError, a >= 0, "[bounds] is not defined when axis is None");
          size = shard_shape(u.get())[static_cast<size_t>(a)].value();
          count = device_count(u.get());
        }
        nb::list out;
        for (int64_t i = 0; i < count; i++) out.append(nb::make_tuple(i * size, (i + 1) * size));
        return nb::tuple(out);
      },
      "Begin and end of each device's slice along the axis.");
  c.def(
      "shard",
      [](const PyUOp& u, const DeviceName& devices, std::optional<int> axis) {
        const std::string names = Device::canonical(devices.name);
        return made([&] {
          return tensor_detail::distribute(u.get(), names, axis ? ShardAxes(axis_in(u.get(), *axis)) : ShardAxes());
        });
      },
      "devices"_a, "axis"_a = nb::none());
  c.def(
      "copy_to_device",
      [](const PyUOp& u, const DeviceName& device) {
        const std::string names = Device::canonical(device.name);
        return made([&] { return UOp::make(Ops::COPY, u.get().dtype(), {u.get()}, Arg(names)); });
      },
      "device"_a);
  c.def(
      "unshard",
      [](const PyUOp& u, nb::object axis) {
        if (nb::isinstance<nb::tuple>(axis) && nb::len(axis) == 1) axis = axis[0];
        const int a = nb::cast<int>(axis);
        return made([&] { return UOp::make(Ops::UNSHARD, u.get().dtype(), {u.get()}, Arg(axis_in(u.get(), a))); });
      },
      "axis"_a, "The value whose slices along an axis the devices have.");
  c.def(
      "mselect",
      [](const PyUOp& u, int64_t i) {
        return made([&] { return UOp::make(Ops::MSELECT, u.get().dtype(), {u.get()}, Arg(i)); });
      },
      "i"_a, "What device i has.");
  c.def_static(
      "mstack",
      [](nb::args parts) {
        const UOps src = nodes_of(parts);
        if (src.empty()) throw nb::type_error("mstack() takes at least one UOp");
        return made([&] { return join_shards(src, {}, ""); });
      },
      "One value for each device.");
  c.def(
      "allreduce",
      [](const PyUOp& u, nb::handle op, const DeviceName& device) {
        const Ops o = require_op(op);
        const std::string names = Device::canonical(device.name);
        return made([&] {
          UOp r = UOp::make(Ops::ALLREDUCE, u.get().dtype(), {u.get()}, ReduceArg{o, {}});
          return device_of(r) == names ? r : UOp::make(Ops::COPY, r.dtype(), {r}, Arg(names));
        });
      },
      "op"_a, "device"_a, "What the devices have, combined on each of them.");
}

}  // namespace tg::python
