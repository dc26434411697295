/// \file Model: a trained network from an ONNX file, as a function of tensors.
#include "tinygrad/onnx/model.h"

#include <algorithm>
#include <cstring>
#include <istream>
#include <iterator>
#include <map>

#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/io/file.h"
#include "tinygrad/onnx/run.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::onnx {

/// Shared by all copies of a model. What runs add to it is behind its lock.
struct Model::State {
  State(ModelProto p, const ModelOptions& o)
      : model(std::make_shared<const PlannedModel>(std::move(p))),
        options{o.device, o.float_type.value_or(dtypes::float32), o.trainable, false, -1} {}
  State(std::shared_ptr<const PlannedModel> m, RunOptions o) : model(std::move(m)), options(std::move(o)) {}

  std::shared_ptr<const PlannedModel> model;
  RunOptions options;
  ConstantPool constants;
  std::mutex lock;
  std::optional<Frame> folded;  ///< initializers, and what depends on them alone
};

namespace {

Frame initial_frame(const PlannedModel& model, Run& run) {
  Frame frame;
  frame.opsets = &model.proto().opsets;
  for (const TensorProto& t : model.proto().graph.initializers) frame.values.insert_or_assign(t.name, run.constant(t));
  return frame;
}

/// Returns a computed constant as nodes see it: in storage, or on the host where it is small.
Value settled(const Value& v, const Run& run) {
  const Tensor* t = v.tensor();
  if (!t || !t->is_realized() || t->numel() > kMostHostElements) return v;
  const DType d = t->dtype();
  const bool plain = v.elem() == elem_type_of(d) && !d.is_fp8() && d != dtypes::uint64;
  return plain ? Value(run.read_data(*t)) : v;
}

/// Computes what depends on initializers alone. Values much larger than what they are made of stay expressions.
Frame folded_frame(const PlannedModel& model, Run& run) {
  Frame frame = initial_frame(model, run);
  run.execute({nullptr, model.constant_nodes()}, frame);
  Tensors stored;
  for (const Node* n : model.constant_nodes()) {
    int64_t operands = kMostHostElements;
    for (const std::string_view name : n->inputs)
      if (const Value* v = name.empty() ? nullptr : frame.find(name); v && v->tensor())
        operands += v->tensor()->numel();
    for (const std::string_view name : n->outputs) {
      const auto at = frame.values.find(name);
      if (at == frame.values.end() || !at->second.tensor()) continue;
      const Tensor& t = *at->second.tensor();
      if (t.numel() == 0 || t.numel() > 4 * operands) continue;
      const ElemType elem = at->second.elem();
      stored.push_back(t.contiguous());
      at->second = Value(stored.back(), elem);
    }
  }
  if (!stored.empty()) realize(stored);
  for (const Node* n : model.constant_nodes())
    for (const std::string_view name : n->outputs)
      if (const auto at = frame.values.find(name); at != frame.values.end()) at->second = settled(at->second, run);
  return frame;
}

/// Compares the sizes of an input with what the file says; `named` has the sizes of names seen so far.
void check_shape(const ValueInfo& info, const Shape& shape, std::map<std::string_view, SInt>& named) {
  if (!info.type.shape) return;
  const std::vector<Dimension>& dims = *info.type.shape;
  TG_CHECK(ShapeError, dims.size() == shape.size(), "[onnx] got shape ", shape, " for input ", printable(info.name),
           ", expected ", dims.size(), " axes");
  for (size_t i = 0; i < dims.size(); i++) {
    if (dims[i].value)
      TG_CHECK(ShapeError, shape[i] == *dims[i].value || shape[i].symbolic(), "[onnx] got shape ", shape, " for input ",
               printable(info.name), ", expected size ", *dims[i].value, " of axis ", i);
    else if (!dims[i].name.empty()) {
      const auto [at, is_new] = named.try_emplace(dims[i].name, shape[i]);
      TG_CHECK(ShapeError, is_new || at->second == shape[i], "[onnx] got shape ", shape, " for input ",
               printable(info.name), ", expected size ", at->second, " of axis ", i, ", as ", printable(dims[i].name),
               " is elsewhere");
    }
  }
}

/// Returns a map as its declared type has it: integers become floats where these are declared. So do the maps of a
/// sequence.
Value checked_maps(const ValueInfo& info, const TypeInfo& type, const Value& v) {
  if (const Sequence* s = v.sequence(); s && type.kind == TypeInfo::kSequence && type.inner->kind == TypeInfo::kMap) {
    Sequence out{{}, type.inner->inner->elem};
    for (const Value& item : s->items) out.items.push_back(checked_maps(info, *type.inner, item));
    return out;
  }
  if (type.kind != TypeInfo::kMap) return v;
  TG_CHECK(ValueError, v.map(), "[onnx] got ", v.kind(), " for input ", printable(info.name), ", expected a map");
  const ElemType elem = type.inner->elem;
  const bool texts = elem == ElemType::kString;
  ValueMap out{{}, elem};
  for (const auto& [key, item] : v.map()->items) {
    TG_CHECK(ValueError, std::holds_alternative<std::string>(key) == (type.elem == ElemType::kString), "[onnx] got a ",
             key.index() == 0 ? "number" : "text", " as key of input ", printable(info.name), ", expected type ",
             elem_name(type.elem));
    const auto* whole = std::get_if<int64_t>(&item);
    const bool fits = texts ? item.index() == 2 : elem == ElemType::kInt64 ? item.index() == 0 : item.index() != 2;
    TG_CHECK(ValueError, fits, "[onnx] got an item of another type in input ", printable(info.name), ", expected ",
             elem_name(elem));
    const bool widen = whole && elem != ElemType::kInt64;
    out.items.emplace(key, widen ? ValueMap::Item(static_cast<double>(*whole)) : item);
  }
  return out;
}

/// Returns an input as its declared type has it. Files with a size of 0 in a scalar's place are taken at their word.
Value checked_input(const ValueInfo& info, const Value& v, const RunOptions& options,
                    std::map<std::string_view, SInt>& named) {
  if (v.is_none()) return v;
  if (info.type.kind != TypeInfo::kTensor) return checked_maps(info, info.type, v);
  TG_CHECK(ValueError, v.has_shape(), "[onnx] got ", v.kind(), " for input ", printable(info.name),
           ", expected a tensor");
  check_shape(info, v.shape(), named);
  const Tensor* t = v.tensor();
  const std::optional<DType> d = storage_dtype(info.type.elem);
  if (!t || !d) return v;
  const DType want = info.type.elem == ElemType::kFloat ? options.float_type : *d;
  const bool wider = packed_bits(info.type.elem) != 0 || info.type.elem == ElemType::kFloat8E8M0;
  return {t->dtype() == want ? *t : t->cast(want), wider ? info.type.elem : ElemType::kUndefined};
}

/// Returns the frame of a call's inputs, checked.
Frame input_frame(const Model& m, const RunOptions& options, const Model::NamedValues& inputs) {
  const GraphProto& graph = m.proto().graph;
  Frame frame;
  frame.opsets = &m.proto().opsets;
  std::map<std::string_view, SInt> named;
  for (const auto& [name, v] : inputs) {
    const auto info = std::ranges::find(graph.inputs, name, &ValueInfo::name);
    TG_CHECK(ValueError, info != graph.inputs.end(), "[onnx] got input \"", printable(name),
             "\", which the model does not have");
    frame.values.insert_or_assign(info->name, checked_input(*info, v, options, named));
  }
  for (const ValueInfo& v : m.inputs())
    TG_CHECK(ValueError, frame.values.contains(v.name), "[onnx] got no input \"", printable(v.name), "\" of the model");
  return frame;
}

/// Returns whether an input replaces an initializer that others were computed of: in files before version 4 of the
/// format every initializer is an input as well.
bool replaces_constant(const ModelProto& m, const Model::NamedValues& inputs) {
  return m.ir_version < 4 && std::ranges::any_of(
                                 inputs,
                                 [&](const auto& named) {
                                   return std::ranges::find(m.graph.initializers, named.first, &TensorProto::name) !=
                                          m.graph.initializers.end();
                                 });
}

/// Returns the outputs of the graph, or of the node at which the run stopped.
Model::NamedValues results_of(const GraphProto& graph, const Run& run, const Frame& frame) {
  Model::NamedValues out;
  if (const Node* last = run.stopped_at()) {
    for (const std::string_view name : last->outputs)
      if (const Value* v = frame.find(name)) out.emplace_back(name, *v);
    return out;
  }
  for (const ValueInfo& v : graph.outputs) {
    const Value* found = frame.find(v.name);
    TG_CHECK(FormatError, found, "[onnx] output \"", printable(v.name), "\" is given by nothing");
    out.emplace_back(v.name, *found);
  }
  return out;
}

}  // namespace

Model Model::of_proto(ModelProto proto, const ModelOptions& o) {
  TG_CHECK(DTypeError, !o.float_type || (o.float_type->is_float() && !o.float_type->is_weak()),
           "[onnx] got float type ", *o.float_type, ", expected a float type");
  return Model(std::make_shared<State>(std::move(proto), o));
}

Model Model::from_file(const std::filesystem::path& path, const ModelOptions& o) {
  const HostFaultWatch faults;
  const io::MappedFile file = io::map_file(path, "onnx");
  const HostBytes bytes{std::as_bytes(std::span(file.bytes)), file.owner, HostBytes::Access::kReadOnly};
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  ModelProto proto = parse_model(bytes, path.string(), folder);
  faults.check();
  return of_proto(std::move(proto), o);
}

Model Model::from_bytes(HostBytes bytes, const ModelOptions& o, const std::filesystem::path& folder) {
  return of_proto(parse_model(std::move(bytes), "model", folder), o);
}

Model Model::from_stream(std::istream& in, const ModelOptions& o) {
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const HostBytes bytes = HostBytes::made_by(
      text.size(), [&](std::span<std::byte> out) { std::memcpy(out.data(), text.data(), text.size()); });
  return of_proto(parse_model(bytes, "stream"), o);
}

const ModelProto& Model::proto() const { return state_->model->proto(); }
const std::vector<ValueInfo>& Model::outputs() const { return proto().graph.outputs; }

const std::vector<ValueInfo>& Model::inputs() const { return state_->model->inputs(); }

Model::NamedValues Model::run(const NamedValues& inputs) const {
  State& state = *state_;
  Frame frame = input_frame(*this, state.options, inputs);
  const bool whole =
      state.options.trainable || state.options.limit >= 0 || state.options.trace || replaces_constant(proto(), inputs);
  const Frame* base = nullptr;
  if (!whole) {
    const std::lock_guard hold(state.lock);
    if (!state.folded && !JitCore::capturing()) {  // a capture would compute constants in each replay
      Run folding(*state.model, state.options, state.constants, Run::Reads::kConstants);
      state.folded = folded_frame(*state.model, folding);
    }
    if (state.folded) base = &*state.folded;
  }
  Run run(*state.model, state.options, state.constants);
  const Frame initial = base ? Frame() : initial_frame(*state.model, run);
  frame.parent = base ? base : &initial;
  run.execute(base ? state.model->variable_nodes() : GraphPlan{nullptr, state.model->main().nodes}, frame);
  return results_of(proto().graph, run, frame);
}

std::map<std::string, Tensor> Model::operator()(const std::map<std::string, Tensor>& inputs) const {
  NamedValues given;
  for (const auto& [name, t] : inputs) given.emplace_back(name, t);
  std::map<std::string, Tensor> out;
  for (const auto& [name, v] : run(given)) {
    TG_CHECK(ValueError, v.tensor() || v.host(), "[onnx] output \"", printable(name), "\" is ", v.kind(),
             ", which run() returns");
    out.emplace(name, v.as_tensor(state_->options.device));
  }
  return out;
}

std::string Model::sole_input() const {
  const std::vector<ValueInfo>& in = inputs();
  TG_CHECK(ValueError, in.size() == 1 && outputs().size() == 1, "[onnx] got a model of ", in.size(), " inputs and ",
           outputs().size(), " outputs, expected one of each: give tensors by name");
  return std::string(in[0].name);
}

Tensor Model::operator()(const Tensor& x) const {
  return (*this)(std::map<std::string, Tensor>{{sole_input(), x}}).begin()->second;
}

Model Model::to(const std::string& device) const {
  RunOptions options = state_->options;
  options.device = device;
  return Model(std::make_shared<State>(state_->model, std::move(options)));
}

nn::StateDict Model::parameters() const {
  nn::StateDict out;
  for (const TensorProto& t : proto().graph.initializers) {
    const std::optional<DType> d = storage_dtype(t.type);
    if (!d || !d->is_float() || t.type == ElemType::kFloat4E2M1) continue;
    const Value v = state_->constants.get(t, state_->options);
    if (v.tensor()) out.emplace_back(std::string(t.name), *v.tensor());
  }
  return out;
}

void Model::debug(bool trace, int64_t limit) {
  state_->options.trace = trace;
  state_->options.limit = limit;
}

}  // namespace tg::onnx
