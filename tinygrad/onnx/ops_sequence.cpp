/// \file Operators on sequences of values.
#include <algorithm>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// Returns a place in a sequence of `n`, counted from the front; `n` itself where `end` allows it.
int64_t place(int64_t at, int64_t n, bool end) {
  const int64_t k = at < 0 ? at + n : at;
  TG_CHECK(IndexError, k >= 0 && k < n + int64_t{end}, "got position ", at, " of a sequence of ", n);
  return k;
}

Values empty(NodeContext& c) { return {Sequence{{}, static_cast<ElemType>(c.attr("dtype", int64_t{1}))}}; }

Values construct(NodeContext& c) { return {Sequence{c.values(), c.value(0).elem()}}; }

Values length(NodeContext& c) { return {HostArray::scalar(static_cast<int64_t>(c.sequence(0).items.size()))}; }

Values at(NodeContext& c) {
  const Sequence& s = c.sequence(0);
  return {s.items[static_cast<size_t>(place(c.integer(1), static_cast<int64_t>(s.items.size()), false))]};
}

Values insert(NodeContext& c) {
  Sequence s = c.sequence(0);
  const auto n = static_cast<int64_t>(s.items.size());
  s.items.insert(s.items.begin() + place(c.integer_or(2, n), n, true), c.value(1));
  s.elem = c.value(1).elem();
  return {s};
}

Values erase(NodeContext& c) {
  Sequence s = c.sequence(0);
  const auto n = static_cast<int64_t>(s.items.size());
  s.items.erase(s.items.begin() + place(c.integer_or(1, -1), n, false));
  return {s};
}

Values concat(NodeContext& c) {
  Tensors parts;
  for (const Value& v : c.sequence(0).items) parts.push_back(v.as_tensor(c.device()));
  c.check(!parts.empty(), "got an empty sequence, expected one with tensors");
  const int64_t axis = c.required_int("axis");
  if (c.flag("new_axis")) return {Tensor::stack(parts, normal_axis(axis, parts[0].ndim() + 1))};
  return {Tensor::cat(parts, normal_axis(axis, parts[0].ndim()))};
}

/// Parts of one size, of given sizes, or of one element each, which lose the axis unless keepdims.
Values split(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int axis = normal_axis(c.attr("axis", int64_t{0}), x.ndim());
  Sequence out;
  out.elem = c.value(0).elem();
  Tensors parts;
  if (!c.has(1)) {
    c.check(x.shape(axis) <= 1 << 16, "got ", x.shape(axis), " parts");
    parts = x.split(1, axis);
    if (!c.flag("keepdims", true))
      for (Tensor& t : parts) t = t.squeeze(axis);
  } else if (const std::vector<int64_t> sizes = c.ints(1); c.value(1).shape().empty()) {
    c.check(sizes[0] > 0 && x.shape(axis) / sizes[0] <= 1 << 16, "got parts of ", sizes[0]);
    parts = x.split(sizes[0], axis);
  } else {
    parts = x.split(sizes, axis);
  }
  out.items.assign(parts.begin(), parts.end());
  return {out};
}

/// Runs a body for each element of the first sequence; other sequences are walked as well, other values are the same.
Values map(NodeContext& c) {
  const GraphProto& body = c.graph("body");
  const size_t n = c.sequence(0).items.size();
  std::vector<Sequence> out(body.outputs.size());
  for (size_t k = 0; k < out.size(); k++) out[k].elem = body.outputs[k].type.elem;
  for (size_t i = 0; i < n; i++) {
    c.run().count_step();
    Values given;
    for (const Value& v : c.values()) {
      c.check(!v.sequence() || i < v.sequence()->items.size(), "got sequences of different lengths");
      given.push_back(v.sequence() ? v.sequence()->items[i] : v);
    }
    Values results = c.run().call_graph(body, given, c.frame());
    for (size_t k = 0; k < out.size(); k++) out[k].items.push_back(std::move(results[k]));
  }
  Values all;
  for (Sequence& s : out) all.emplace_back(std::move(s));
  return all;
}

const OperatorRow kRows[] = {
    {"", "SequenceEmpty", 11, empty},       {"", "SequenceConstruct", 11, construct},
    {"", "SequenceLength", 11, length},     {"", "SequenceAt", 11, at},
    {"", "SequenceInsert", 11, insert},     {"", "SequenceErase", 11, erase},
    {"", "ConcatFromSequence", 11, concat}, {"", "SplitToSequence", 11, split},
    {"", "SequenceMap", 17, map},
};

}  // namespace

OperatorRows sequence_operators() { return kRows; }

}  // namespace tg::onnx
