/// \file The schedule of tensors, as a list of kernels and as a graph: what realize would run.
#include "tinygrad/schedule/schedule.h"

#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "interrupt.h"
#include "tinygrad/tensor/inspect_tensors.h"

namespace tg::python {

namespace {

/// One step of a schedule.
struct PyStep {
  UOpRef call;  ///< CALL(kernel SINK or COPY, buffers...)
  std::string metadata;
};

Tensors tensors_of(const Tensor& first, const nb::args& rest) {
  Tensors t{first};
  for (nb::handle h : rest) t.push_back(nb::cast<Tensor>(h));
  return t;
}

/// The steps as nodes of the global graph. Buffers a schedule makes for itself become BUFFERs of their own.
std::vector<PyStep> steps_of(const BoundSchedule& bound) {
  GraphScope g;
  std::vector<UOp> buffers(bound.inputs.begin(), bound.inputs.end());
  const Schedule& s = *bound.schedule;
  for (size_t i = buffers.size(); i < s.buffers.size(); i++)
    buffers.push_back(new_buffer({s.buffers[i].size}, s.buffers[i].dtype, s.buffers[i].device));
  std::vector<PyStep> steps;
  for (const ScheduleCall& c : s.calls) {
    UOps src;
    if (c.kind == ScheduleCall::kKernel) src.push_back(import_graph(c.kernel->arena->graph(), c.kernel->sink));
    else {
      UOp from = buffers[static_cast<size_t>(c.buffers[1])];
      src.push_back(
          UOp::make(Ops::COPY, from.dtype(), {from}, Arg(s.buffers[static_cast<size_t>(c.buffers[0])].device)));
    }
    for (int32_t b : c.buffers) src.push_back(buffers[static_cast<size_t>(b)]);
    steps.push_back({UOpRef(UOp::make(Ops::CALL, dtypes::void_, src)), c.metadata});
  }
  return steps;
}

BoundSchedule scheduled(const Tensors& t) {
  Unlocked work;
  return schedule(t);
}

UOpObject linear_of(const BoundSchedule& bound) {
  const std::vector<PyStep> steps = steps_of(bound);
  UOps calls;
  for (const PyStep& s : steps) calls.push_back(s.call.get());
  return made([&] { return UOp::make(Ops::LINEAR, dtypes::void_, calls); });
}

nb::object value_object(std::string_view text) { return nb::str(text.data(), text.size()); }
nb::object value_object(const std::vector<std::string>& texts) {
  nb::list l;
  for (const std::string& t : texts) l.append(value_object(t));
  return l;
}
template <class T>
  requires std::is_arithmetic_v<T>
nb::object value_object(T number) {
  if constexpr (std::is_floating_point_v<T>) return nb::float_(static_cast<double>(number));
  else return nb::int_(number);
}
template <class T>
  requires std::is_arithmetic_v<T>
nb::object value_object(const std::vector<T>& numbers) {
  nb::list l;
  for (T n : numbers) l.append(value_object(n));
  return l;
}
nb::object value_object(const std::vector<CostAccount::Part>& parts) {
  nb::dict d;
  for (const CostAccount::Part& p : parts) d[p.what] = p.cycles;
  return d;
}
template <class T> nb::list list_of_fields(const std::vector<T>& list) {
  nb::list out;
  for (const T& one : list) {
    nb::dict fields;
    each_field(one, [&](const char* name, const auto& value) { fields[name] = value_object(value); });
    out.append(fields);
  }
  return out;
}
nb::dict inspection_dict(const Inspection& in) {
  nb::dict out;
  out["graph"] = in.graph;
  out["buffers"] = list_of_fields(in.buffers);
  out["kernels"] = list_of_fields(in.kernels);
  return out;
}

}  // namespace

void bind_tensor_schedule(TensorClass& c) {
  nb::class_<PyStep> step(c, "ScheduleItem", "One kernel or copy.");
  step.def_prop_ro("ast", [](const PyStep& s) { return wrap(UOpRef(s.call.get().src(0))); });
  step.def_prop_ro("bufs", [](const PyStep& s) {
    nb::list l;
    for (UOp b : s.call.get().srcs().subspan(1)) l.append(wrap(UOpRef(b)));
    return nb::tuple(l);
  });
  step.def_prop_ro("metadata", [](const PyStep& s) { return s.metadata; });
  c.def(
      "schedule", [](const Tensor& t, nb::args lst) { return steps_of(scheduled(tensors_of(t, lst))); }, "lst"_a,
      "The kernels and copies that realize would run, in order.");
  c.def(
      "explain",
      [](const Tensor& t, bool source) {
        Unlocked work;
        return t.explain(source);
      },
      "source"_a = false,
      "Says in text how realize would compute this tensor: stored values with reasons, kernels with their plan, the "
      "cost "
      "model's account and their time.");
  c.def(
      "inspect",
      [](const Tensor& t, nb::args lst, bool measure, bool assembly) {
        const Tensors all = tensors_of(t, lst);
        Inspection in;
        {
          Unlocked work;
          in = inspect(all, {.measure = measure, .assembly = assembly});
        }
        return inspection_dict(in);
      },
      "lst"_a, "measure"_a = true, "assembly"_a = false, "What explain says, as data: graph, buffers and kernels.");
  c.def(
      "schedule_linear", [](const Tensor& t, nb::args lst) { return linear_of(scheduled(tensors_of(t, lst))); },
      "lst"_a, "The schedule as a LINEAR of CALLs.");
  c.def(
      "linear_with_vars",
      [](const Tensor& t, nb::args lst) {
        BoundSchedule bound = scheduled(tensors_of(t, lst));
        nb::dict vars;
        for (const auto& [name, value] : bound.vars) vars[name.c_str()] = value;
        return nb::make_tuple(linear_of(bound), vars);
      },
      "lst"_a, "The schedule as a LINEAR of CALLs, and the values of the variables.");
}

}  // namespace tg::python
