/// \file Calls: functions traced by Python, gradients and kernels written in Python.
#include "tinygrad/tensor/grad/function.h"

#include <mutex>

#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "tinygrad/tensor/grad/calls.h"

namespace tg::python {

namespace {
/// Python functions of nodes that died under the graph's lock, where Python must not run.
struct Dropped {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};
Dropped& dropped() {
  static Dropped& d = *new Dropped;
  return d;
}
void drain() {
  std::vector<PyObject*> now;
  {
    std::lock_guard lock(dropped().mutex);
    now.swap(dropped().objects);
  }
  for (PyObject* o : now) Py_DECREF(o);
}

/// A Python function from gradients and the call to gradients. Held until the GIL is there to let go of it.
struct PyGradient {
  explicit PyGradient(nb::handle f) : function(f.inc_ref().ptr()) {}
  PyGradient(const PyGradient&) = delete;
  ~PyGradient() {
    std::lock_guard lock(dropped().mutex);
    dropped().objects.push_back(function);
  }
  PyObject* function;

  UOps operator()(const UOps& gradients, UOp call) const {
    nb::gil_scoped_acquire gil;
    nb::list args;
    for (UOp g : gradients)
      if (g) args.append(wrap(UOpRef(g)));
    nb::object node = wrap(UOpRef(call)), r;
    // One gradient: (grad, call); several: (*grads, call=call).
    if (nb::len(args) > 1) r = nb::handle(function)(*nb::tuple(args), "call"_a = node);
    else r = nb::handle(function)(args[0], node);
    UOps out;  // the nodes outlive the Python objects: the caller holds the graph's scope
    for (nb::handle h : nb::iter(r)) {
      if (h.is_none()) out.push_back(UOp());
      else out.push_back(nb::isinstance<Tensor>(h) ? nb::cast<const Tensor&>(h).uop() : node_of(h));
    }
    return out;
  }
};
NodeGradient gradient_from(nb::handle f) {
  if (f.is_none()) return {};
  auto g = std::make_shared<PyGradient>(f);
  return [g](const UOps& gradients, UOp call) { return (*g)(gradients, call); };
}

UOpRef ref_of(nb::handle h) {
  if (!nb::isinstance<Tensor>(h)) return UOpRef(node_of(h));
  GraphScope g;
  return UOpRef(nb::cast<const Tensor&>(h).uop());
}
std::vector<UOpRef> refs_of(nb::handle sequence) {
  std::vector<UOpRef> v;
  for (nb::handle h : nb::iter(sequence)) v.push_back(ref_of(h));
  return v;
}
}  // namespace

void bind_function(nb::module_& m, TensorClass& c) {
  m.def("_uop_of", [](nb::handle h) { return wrap(ref_of(h)); });
  m.def(
      "_make_function",
      [](nb::handle args, nb::handle results, const std::string& name, bool precompile, bool precompile_backward,
         bool allow_implicit, nb::handle gradient) {
        drain();
        const std::vector<UOpRef> a = refs_of(args), r = refs_of(results);
        CallInfo info{name, precompile, precompile_backward, make_gradient(gradient_from(gradient)), {}};
        Tensors out;
        GraphScope g;
        UOps used;
        for (const UOpRef& u : a)
          if (!device_of(u).empty() || u.get().is(Ops::AFTER)) used.push_back(u);
        UOp call = make_function(UOps(r.begin(), r.end()), used, std::move(info), allow_implicit);
        for (size_t i = 0; i < r.size(); i++) out.push_back(Tensor::from_uop(get_tuple(call, i)));
        return out;
      },
      "args"_a, "results"_a, "name"_a, "precompile"_a, "precompile_backward"_a, "allow_implicit"_a,
      "gradient"_a.none());
  m.def(
      "_call",
      [](const Tensors& args, nb::handle body, nb::handle gradient) {
        drain();
        const UOpRef b = ref_of(body);
        NodeGradient f = gradient_from(gradient);
        GraphScope g;
        return call_body(args, Tensor::from_uop(b), make_gradient(std::move(f)));
      },
      "args"_a, "body"_a, "gradient"_a.none());
  c.def("as_param", &Tensor::as_param, "slot"_a);
  c.def(
      "callify",
      [](nb::object self, nb::args lst) {
        drain();
        Tensors all{nb::cast<Tensor>(self)};
        for (nb::handle t : lst) all.push_back(nb::cast<Tensor>(t));
        callify(all);
        return self;
      },
      "lst"_a, "What is pending becomes one call. Values are what they were.");
  c.def(
      "decode_hevc_frame",
      [](const Tensor& t, nb::handle frame_pos, const Shape& shape, const Tensor& state,
         std::optional<Tensors> ref_frames) {
        const UOpRef position = ref_of(frame_pos);
        GraphScope g;
        return decode_hevc_frame(t, position.get(), shape, state, ref_frames ? *ref_frames : Tensors());
      },
      "frame_pos"_a, "shape"_a, "state"_a, "ref_frames"_a = nb::none());
  m.def(
      "_custom_kernel",
      [](const Tensors& buffers, nb::handle kernel, nb::handle gradient) {
        drain();
        PreparedKernel p = prepare_kernel(buffers);
        nb::object sink = kernel(*wrap_all(p.buffers));
        return apply_kernel(p, sink.is_none() ? UOp() : node_of(sink), gradient_from(gradient));
      },
      "buffers"_a, "kernel"_a, "gradient"_a.none());
}

}  // namespace tg::python
