/// \file Run: one execution of a model's graph.
#include "tinygrad/onnx/run.h"

#include <iostream>

#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/tensor_data.h"
#include "tinygrad/tensor/host_memory.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::onnx {
namespace {

/// Most functions and graphs that are inside of each other while a model runs.
constexpr int kMostCalls = 64;

std::string describe(const Node& n) {
  return str("[onnx] node \"", n.name.substr(0, 80), "\" (", n.domain.empty() ? "" : str(n.domain, "."), n.op,
             n.name.empty() && !n.outputs.empty() ? str(", which gives \"", n.outputs[0].substr(0, 80), "\"") : "",
             "): ");
}

/// Runs `body`; errors keep their class and begin with the node.
template <class F> auto naming(const Node& n, F&& body) {
  const auto text = [&](const Error& e) {
    const std::string_view what = e.what();
    return printable(what.starts_with("[onnx] node") ? std::string(what) : describe(n) + std::string(what));
  };
  try {
    return body();
  } catch (const ShapeError& e) { throw ShapeError(text(e)); } catch (const DTypeError& e) {
    throw DTypeError(text(e));
  } catch (const IndexError& e) { throw IndexError(text(e)); } catch (const OverflowError& e) {
    throw OverflowError(text(e));
  } catch (const ValueError& e) { throw ValueError(text(e)); } catch (const FormatError& e) {
    throw FormatError(text(e));
  } catch (const DeviceError& e) { throw DeviceError(text(e)); } catch (const std::out_of_range&) {
    throw FormatError(printable(describe(n)) + "an input or attribute has fewer elements than are needed");
  } catch (const std::length_error&) {
    throw FormatError(printable(describe(n)) + "an input or attribute asks for more elements than there can be");
  }
}

void print_node(size_t number, const Node& n, const Values& inputs, const Values& results) {
  const auto list = [](const Values& values) {
    std::string out;
    for (const Value& v : values)
      out += (out.empty() ? "" : ", ") +
             (v.has_shape() ? str(elem_name(v.elem()), v.shape(), v.host() ? "*" : "") : v.kind());
    return out;
  };
  std::cout << number << ": " << (n.domain.empty() ? "" : str(n.domain, ".")) << n.op << " \"" << n.name << "\" ("
            << list(inputs) << ") -> (" << list(results) << ")\n";
}

/// Returns a constant of the file as the value that nodes see.
Value make_constant(const TensorProto& t, const RunOptions& options) {
  if (t.type == ElemType::kString) { return StringArray::of(t.dims, {t.strings.begin(), t.strings.end()}); }
  const DType d = number_dtype(t.type);
  const bool plain = packed_bits(t.type) == 0 && t.type != ElemType::kFloat8E8M0;
  const bool converted = t.type == ElemType::kFloat && options.float_type != d;
  const bool trained = options.trainable && d.is_float();
  if (plain && !trained && !d.is_fp8() && d != dtypes::uint64 && t.count() <= kMostHostElements) {
    const HostRef h = host_array_of(t.bytes.bytes, d, t.dims);
    return converted ? host_cast(*h, options.float_type) : h;
  }
  Tensor out = tensor_of(t);
  if (converted) out = out.cast(options.float_type);
  if (!options.device.empty()) out = out.to(options.device);
  if (converted || !options.device.empty()) out = out.contiguous();
  return {out, plain ? ElemType::kUndefined : t.type};
}

}  // namespace

Value ConstantPool::get(const TensorProto& t, const RunOptions& options) {
  const std::lock_guard hold(lock_);
  const auto found = made_.find(&t);
  return found != made_.end() ? found->second : made_.emplace(&t, make_constant(t, options)).first->second;
}

const Value* Frame::find(std::string_view name) const {
  for (const Frame* f = this; f; f = f->parent) {
    const auto found = f->values.find(name);
    if (found != f->values.end()) return &found->second;
  }
  return nullptr;
}

const Attribute* Frame::bound(std::string_view name) const {
  for (const Frame* f = this; f; f = f->parent)
    if (f->bindings) {
      const auto found = f->bindings->find(name);
      return found == f->bindings->end() ? nullptr : found->second;
    }
  return nullptr;
}

int64_t Frame::opset(std::string_view domain) const {
  for (const Frame* f = this; f; f = f->parent)
    if (f->opsets)
      for (const auto& [name, version] : *f->opsets)
        if (name == domain) return version;
  return 1;
}

void Run::store(const Node& node, Values&& results, Frame& frame) const {
  for (size_t i = 0; i < node.outputs.size(); i++) {
    if (node.outputs[i].empty()) continue;
    TG_CHECK(FormatError, i < results.size(), "gives ", results.size(), " outputs, expected ", node.outputs.size());
    frame.values.insert_or_assign(node.outputs[i], std::move(results[i]));
  }
}

void Run::execute(const GraphPlan& plan, Frame& frame) {
  if (plan.graph)
    for (const TensorProto& t : plan.graph->initializers)
      if (!frame.values.contains(t.name)) frame.values.emplace(t.name, constant(t));
  for (size_t i = 0; i < plan.nodes.size(); i++) {
    const Node& n = *plan.nodes[i];
    if (depth_ == 0) number_ = i;
    naming(n, [&] { store(n, execute_node(n, frame), frame); });
    if (options_.limit >= 0 && depth_ == 0 && static_cast<int64_t>(i) == options_.limit) {
      stopped_at_ = &n;
      return;
    }
  }
}

Values Run::execute_node(const Node& node, Frame& frame) {
  count_step();
  Values inputs;
  for (const std::string_view name : node.inputs) {
    const Value* v = name.empty() ? nullptr : frame.find(name);
    TG_CHECK(FormatError, v || name.empty(), "takes \"", name.substr(0, 80), "\", which nothing before it gives");
    inputs.push_back(v ? *v : Value());
  }
  if (const FunctionProto* f = model_.function(node)) return call_function(*f, node, inputs, frame);
  const int64_t version = frame.opset(node.domain);
  const OperatorRow* row = find_operator(node.domain, node.op, version);
  TG_CHECK(FormatError, row, "version ", version, " of this operator is not supported: there is ",
           supported_versions(node.domain, node.op));
  NodeContext context(node, version, *this, frame, std::move(inputs));
  Values out = row->build(context);
  if (options_.trace) print_node(number_, node, context.values(), out);
  return out;
}

Values Run::call_function(const FunctionProto& f, const Node& node, const Values& inputs, const Frame& caller) {
  TG_CHECK(FormatError, ++depth_ < kMostCalls, "calls functions inside of more than ", kMostCalls, " others");
  std::unordered_map<std::string_view, const Attribute*> bindings;
  for (const Attribute& a : f.defaults) bindings.insert_or_assign(a.name, &a);
  for (const Attribute& a : node.attributes) {
    const Attribute* given = a.reference.empty() ? &a : caller.bound(a.reference);
    if (given) bindings.insert_or_assign(a.name, given);
  }
  Frame frame;
  frame.bindings = &bindings;
  frame.opsets = f.opsets.empty() ? &model_.proto().opsets : &f.opsets;
  for (size_t i = 0; i < f.inputs.size(); i++)
    frame.values.insert_or_assign(f.inputs[i], i < inputs.size() ? inputs[i] : Value());
  execute(model_.plan_of(f), frame);
  Values out;
  for (const std::string_view name : f.outputs) {
    const Value* v = frame.find(name);
    out.push_back(v ? *v : Value());
  }
  depth_--;
  return out;
}

Values Run::call_graph(const GraphProto& graph, const Values& inputs, const Frame& parent) {
  TG_CHECK(FormatError, ++depth_ < kMostCalls, "has graphs inside of more than ", kMostCalls, " others");
  TG_CHECK(FormatError, inputs.size() <= graph.inputs.size(), "gives ", inputs.size(), " values to a graph of ",
           graph.inputs.size(), " inputs");
  Frame frame;
  frame.parent = &parent;
  for (size_t i = 0; i < inputs.size(); i++) frame.values.insert_or_assign(graph.inputs[i].name, inputs[i]);
  execute(model_.plan_of(graph), frame);
  Values out;
  for (const ValueInfo& v : graph.outputs) {
    const Value* found = frame.find(v.name);
    TG_CHECK(FormatError, found, "graph output \"", v.name.substr(0, 80), "\" is given by nothing");
    out.push_back(*found);
  }
  depth_--;
  return out;
}

HostRef Run::read(const Tensor& t) const {
  if (reads_ == Reads::kConstants) return read_data(t);
  return std::static_pointer_cast<const HostArray>(JitCore::decide(t, [&] { return read_data(t); }));
}

void Run::count_step() {
  TG_CHECK(FormatError, ++executed_ <= options_.most.nodes, "is node or iteration number ", executed_,
           " of a run: more than are executed");
}

void Run::count_bytes(int64_t elements, size_t each) {
  int64_t bytes = 0;
  const bool over = __builtin_mul_overflow(elements, static_cast<int64_t>(each), &bytes);
  TG_CHECK(FormatError, !over && bytes <= options_.most.bytes - bytes_, "makes ", elements, " elements of ", each,
           " bytes after ", bytes_, " bytes on the host, expected at most ", options_.most.bytes, " bytes in a run");
  bytes_ += bytes;
}

HostRef Run::read_data(const Tensor& t) const {
  TG_CHECK(FormatError, t.numel() <= options_.most.read, "the host reads a tensor of ", t.numel(),
           " elements, expected at most ", options_.most.read);
  std::vector<int64_t> shape;
  for (const SInt& n : t.shape()) shape.push_back(n.value());
  const HostBytes bytes = host_bytes(t.detach());
  return host_array_of(bytes.bytes, t.stored_dtype(), std::move(shape));
}

}  // namespace tg::onnx
