/// \file Operators with graphs inside: branches, loops and scans; and optional values.
#include <algorithm>
#include <functional>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::onnx {
namespace {

/// Most iterations of a loop.
constexpr int64_t kMostIterations = 1 << 14;

/// A captured function gives results of the same shapes in every call: JitError where the outputs of two branches are
/// declared with different ones.
void check_captured_branches(const NodeContext& c) {
  const auto& then = c.graph("then_branch").outputs;
  const auto& otherwise = c.graph("else_branch").outputs;
  for (size_t i = 0; i < std::min(then.size(), otherwise.size()); i++) {
    const auto &a = then[i].type.shape, &b = otherwise[i].type.shape;
    const auto differ = [](const Dimension& x, const Dimension& y) {
      return x.value && y.value && *x.value != *y.value;
    };
    TG_CHECK(JitError, !a || !b || (a->size() == b->size() && std::ranges::equal(*a, *b, std::not_fn(differ))),
             "the branches give output ", i,
             " in different shapes, and the condition is computed: a function that is "
             "captured gives the same shapes in every call");
  }
}

Values branch(NodeContext& c) {
  if (JitCore::capturing() && !c.known(0)) check_captured_branches(c);
  return c.run().call_graph(c.graph(c.integer(0) != 0 ? "then_branch" : "else_branch"), {}, c.frame());
}

/// Returns a condition that a body gave, "" being true.
bool holds(NodeContext& c, const Value& v) {
  if (v.is_none()) return true;
  const HostRef h = v.host() ? v.host_ref() : c.run().read(v.as_tensor());
  c.check(h->count() == 1, "the condition has ", h->count(), " elements, expected one");
  return h->number(0) != 0;
}

Value stacked(const NodeContext& c, const Values& items, int axis, bool reversed) {
  Tensors parts;
  for (const Value& v : items) {
    c.check(v.tensor() || v.host(), "a scan output is ", v.kind(), ", expected tensors");
    parts.push_back(v.as_tensor(c.device()));
  }
  if (reversed) std::ranges::reverse(parts);
  return Tensor::stack(parts, axis);
}

/// A scan output of no iteration: the sizes that the body's output declares, with 0 before them.
Value empty_scan(const NodeContext& c, const ValueInfo& info) {
  Shape s{0};
  if (info.type.shape)
    for (const Dimension& d : *info.type.shape) s.push_back(d.value.value_or(0));
  return Tensor::zeros(s, {.dtype = c.dtype_of(info.type.elem), .device = c.device()});
}

/// The body takes its number, a condition and the carried values; it gives a condition, the next ones, scan outputs.
Values loop(NodeContext& c) {
  const GraphProto& body = c.graph("body");
  const int64_t limit = c.has(0) ? c.integer(0) : kMostIterations;
  Value condition = c.count() > 1 ? c.values()[1] : Value();
  Values carried(c.values().begin() + std::min<long>(2, static_cast<long>(c.count())), c.values().end());
  c.check(body.outputs.size() > carried.size(), "the body gives ", body.outputs.size(),
          " values, expected more than the ", carried.size(), " that are carried");
  const size_t scans = body.outputs.size() - carried.size() - 1;
  std::vector<Values> scanned(scans);
  for (int64_t i = 0; i < limit && holds(c, condition); i++) {
    c.check(i < kMostIterations, "the loop has more than ", kMostIterations, " iterations");
    c.run().count_step();
    Values in{Value(HostArray::scalar(i)),
              condition.is_none() ? Value(HostArray::scalar(1, dtypes::bool_)) : condition};
    in.insert(in.end(), carried.begin(), carried.end());
    const Values out = c.run().call_graph(body, in, c.frame());
    condition = out[0];
    std::copy_n(out.begin() + 1, carried.size(), carried.begin());
    for (size_t k = 0; k < scans; k++) scanned[k].push_back(out[1 + carried.size() + k]);
  }
  Values out = carried;
  for (size_t k = 0; k < scans; k++)
    out.push_back(scanned[k].empty() ? empty_scan(c, body.outputs[1 + carried.size() + k])
                                     : stacked(c, scanned[k], 0, false));
  return out;
}

/// What a scan does with one of its inputs or outputs.
struct Direction {
  int axis;
  bool reversed;
};
std::vector<Direction> directions(const NodeContext& c, const char* axes, const char* orders, size_t n) {
  const std::vector<int64_t> a = c.attr_ints(axes, std::vector<int64_t>(n, 0)),
                             o = c.attr_ints(orders, std::vector<int64_t>(n, 0));
  c.check(a.size() == n && o.size() == n, axes, " and ", orders, " have ", a.size(), " and ", o.size(),
          " numbers, expected ", n);
  std::vector<Direction> out;
  for (size_t i = 0; i < n; i++) out.push_back({static_cast<int>(a[i]), o[i] != 0});
  return out;
}

/// Runs a scan over values without a batch.
Values scan_rows(const NodeContext& c, Values state, const Tensors& rows, const std::vector<Direction>& in,
                 const std::vector<Direction>& out_as) {
  const GraphProto& body = c.graph("body");
  c.check(!rows.empty(), "got no inputs to scan");
  const int64_t length = rows[0].shape(in[0].axis);
  c.check(length <= kMostIterations, "the scan has ", length, " steps, more than ", kMostIterations);
  std::vector<Values> scanned(out_as.size());
  for (int64_t t = 0; t < length; t++) {
    c.run().count_step();
    Values given = state;
    for (size_t k = 0; k < rows.size(); k++) {
      const int64_t at = in[k].reversed ? length - 1 - t : t;
      given.emplace_back(rows[k].slice(in[k].axis, at, at + 1).squeeze(in[k].axis));
    }
    const Values out = c.run().call_graph(body, given, c.frame());
    std::copy_n(out.begin(), state.size(), state.begin());
    for (size_t k = 0; k < scanned.size(); k++) scanned[k].push_back(out[state.size() + k]);
  }
  for (size_t k = 0; k < scanned.size(); k++)
    state.push_back(scanned[k].empty() ? empty_scan(c, body.outputs[state.size()])
                                       : stacked(c, scanned[k], out_as[k].axis, out_as[k].reversed));
  return state;
}

/// Returns how many outputs of the body are collected: those after the states.
size_t scan_outputs(const NodeContext& c, size_t states) {
  const size_t all = c.graph("body").outputs.size();
  c.check(all >= states, "the body gives ", all, " values, expected at least the ", states, " states");
  return all - states;
}

/// Version 8 has a batch as the first axis, and the lengths of its rows as the first input.
Values scan_8(NodeContext& c) {
  const auto n = static_cast<size_t>(c.required_int("num_scan_inputs"));
  c.check(c.count() > n, "got ", c.count(), " inputs, expected more than num_scan_inputs");
  const size_t states = c.count() - 1 - n, outs = scan_outputs(c, states);
  std::vector<Direction> in = directions(c, "axes", "directions", n);
  const std::vector<Direction> as(outs, {0, false});
  const int64_t batch = c.tensor(1).shape(0);
  std::vector<Tensors> results(states + outs);
  for (int64_t b = 0; b < batch; b++) {
    c.run().count_step();
    Values state;
    Tensors rows;
    for (size_t i = 1; i < c.count(); i++) {
      const Tensor one = c.tensor(i)[b];
      if (i <= states) state.emplace_back(one);
      else rows.push_back(c.has(0) ? one.slice(0, 0, c.ints(0).at(static_cast<size_t>(b))) : one);
    }
    const Values out = scan_rows(c, state, rows, in, as);
    for (size_t k = 0; k < out.size(); k++) results[k].push_back(out[k].as_tensor(c.device()));
  }
  Values out;
  for (const Tensors& t : results) out.emplace_back(Tensor::stack(t, 0));
  return out;
}

Values scan_9(NodeContext& c) {
  const auto n = static_cast<size_t>(c.required_int("num_scan_inputs"));
  c.check(c.count() >= n, "got ", c.count(), " inputs, expected num_scan_inputs");
  const size_t states = c.count() - n, outs = scan_outputs(c, states);
  return scan_rows(c, Values(c.values().begin(), c.values().begin() + static_cast<long>(states)), c.tensors(states),
                   directions(c, "scan_input_axes", "scan_input_directions", n),
                   directions(c, "scan_output_axes", "scan_output_directions", outs));
}

Values optional(NodeContext& c) { return {c.count() ? c.values()[0] : Value()}; }
Values optional_has_element(NodeContext& c) { return {HostArray::scalar(int64_t{c.has(0)}, dtypes::bool_)}; }
Values optional_get_element(NodeContext& c) { return {c.value(0)}; }

const OperatorRow kRows[] = {
    {"", "If", 1, branch},
    {"", "Loop", 1, loop},
    {"", "Scan", 8, scan_8},
    {"", "Scan", 9, scan_9},
    {"", "Optional", 15, optional},
    {"", "OptionalHasElement", 15, optional_has_element},
    {"", "OptionalGetElement", 15, optional_get_element},
};

}  // namespace

OperatorRows control_operators() { return kRows; }

}  // namespace tg::onnx
