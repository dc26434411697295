/// \file NodeContext: what the builder of an operator sees of a node.
#include "tinygrad/onnx/node_context.h"

#include <algorithm>

#include "tinygrad/onnx/run.h"
#include "tinygrad/onnx/tensor_data.h"

namespace tg::onnx {

int normal_axis(int64_t axis, int64_t rank) {
  TG_CHECK(IndexError, axis >= -rank && axis < rank, "got axis ", axis, ", expected one of ", rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
std::vector<int> normal_axes(const std::vector<int64_t>& axes, int64_t rank) {
  std::vector<int> out;
  for (const int64_t a : axes) out.push_back(normal_axis(a, rank));
  return out;
}

const Value& NodeContext::value(size_t i) const {
  check(has(i), "got ", inputs_.size(), " inputs without number ", i, ", expected a value for it");
  return inputs_[i];
}

Tensor NodeContext::tensor(size_t i) const {
  const Value& v = value(i);
  check(v.tensor() || v.host(), "input ", i, " is ", v.kind(), ", expected a tensor");
  return v.as_tensor(device());
}

Tensors NodeContext::tensors(size_t from) const {
  Tensors out;
  for (size_t i = from; i < inputs_.size(); i++) out.push_back(tensor(i));
  return out;
}

const StringArray& NodeContext::strings(size_t i) const {
  check(value(i).strings(), "input ", i, " is ", value(i).kind(), ", expected texts");
  return *value(i).strings();
}

const Sequence& NodeContext::sequence(size_t i) const {
  check(value(i).sequence(), "input ", i, " is ", value(i).kind(), ", expected a sequence");
  return *value(i).sequence();
}

const ValueMap& NodeContext::map(size_t i) const {
  check(value(i).map(), "input ", i, " is ", value(i).kind(), ", expected a map");
  return *value(i).map();
}

HostRef NodeContext::host(size_t i) const {
  if (known(i)) return inputs_[i].host_ref();
  return run_.read(tensor(i));
}

HostRef NodeContext::data(size_t i) const { return known(i) ? inputs_[i].host_ref() : run_.read_data(tensor(i)); }

std::vector<int64_t> NodeContext::ints(size_t i) const {
  std::vector<int64_t> out;
  for (const SInt& v : sizes(i)) out.push_back(v.value());
  return out;
}

Shape NodeContext::sizes(size_t i) const {
  const HostRef h = host(i);
  check(!h->dtype.is_float(), "input ", i, " has type ", h->dtype, ", expected integers");
  Shape out;
  for (const HostInt& v : h->ints) out.push_back(v.value);
  return out;
}

std::vector<double> NodeContext::numbers(size_t i) const {
  const HostRef h = host(i);
  std::vector<double> out;
  for (size_t k = 0; k < h->count(); k++) out.push_back(h->number(k));
  return out;
}

int64_t NodeContext::integer(size_t i) const {
  const std::vector<int64_t> v = ints(i);
  check(v.size() == 1, "input ", i, " has ", v.size(), " elements, expected one");
  return v[0];
}

double NodeContext::number(size_t i) const {
  const std::vector<double> v = numbers(i);
  check(v.size() == 1, "input ", i, " has ", v.size(), " elements, expected one");
  return v[0];
}

const Attribute* NodeContext::find(std::string_view name) const {
  const auto at = std::ranges::find(node_.attributes, name, &Attribute::name);
  if (at == node_.attributes.end()) return nullptr;
  return at->reference.empty() ? &*at : frame_.bound(at->reference);
}

const Attribute* NodeContext::typed(std::string_view name, Attribute::Type type, const char* type_name) const {
  const Attribute* a = find(name);
  // A field that was left out of the file has the value 0 or no elements, whose type cannot be seen.
  check(!a || a->type == type || a->type == Attribute::kUnknown, "attribute ", name, " is no ", type_name);
  return a;
}

int64_t NodeContext::attr(std::string_view name, int64_t otherwise) const {
  const Attribute* a = typed(name, Attribute::kInt, "integer");
  return a ? a->i : otherwise;
}
double NodeContext::attr(std::string_view name, double otherwise) const {
  const Attribute* a = typed(name, Attribute::kFloat, "float");
  return a ? static_cast<double>(a->f) : otherwise;
}
std::string NodeContext::attr(std::string_view name, const char* otherwise) const {
  const Attribute* a = typed(name, Attribute::kString, "text");
  return a ? std::string(a->s) : std::string(otherwise);
}
int64_t NodeContext::required_int(std::string_view name) const {
  const std::optional<int64_t> v = optional_int(name);
  check(v.has_value(), "attribute ", name, " is missing");
  return *v;
}
std::optional<int64_t> NodeContext::optional_int(std::string_view name) const {
  const Attribute* a = typed(name, Attribute::kInt, "integer");
  return a ? std::optional(a->i) : std::nullopt;
}
std::vector<int64_t> NodeContext::attr_ints(std::string_view name, std::vector<int64_t> otherwise) const {
  const Attribute* a = typed(name, Attribute::kInts, "list of integers");
  return a ? a->ints : std::move(otherwise);
}
std::vector<double> NodeContext::attr_floats(std::string_view name, std::vector<double> otherwise) const {
  const Attribute* a = typed(name, Attribute::kFloats, "list of floats");
  return a ? std::vector<double>(a->floats.begin(), a->floats.end()) : std::move(otherwise);
}
std::vector<std::string> NodeContext::attr_strings(std::string_view name, std::vector<std::string> otherwise) const {
  const Attribute* a = typed(name, Attribute::kStrings, "list of texts");
  return a ? std::vector<std::string>(a->strings.begin(), a->strings.end()) : std::move(otherwise);
}
const TensorProto* NodeContext::attr_tensor(std::string_view name) const {
  const Attribute* a = typed(name, Attribute::kTensor, "tensor");
  return a ? a->tensor.get() : nullptr;
}
const GraphProto& NodeContext::graph(std::string_view name) const {
  const Attribute* a = typed(name, Attribute::kGraph, "graph");
  check(a && a->graph, "attribute ", name, " is missing, expected a graph");
  return *a->graph;
}

std::string NodeContext::choice(std::string_view name, const char* otherwise,
                                std::initializer_list<const char*> known) const {
  std::string v = attr(name, otherwise);
  std::string list;
  for (const char* k : known) {
    if (v == k) return v;
    list += (list.empty() ? "" : ", ") + std::string(k);
  }
  fail("attribute ", name, " is \"", v.substr(0, 32), "\", expected one of ", list);
}

DType NodeContext::dtype_of(ElemType t) const {
  if (t == ElemType::kFloat) return run_.float_type();
  const std::optional<DType> d = storage_dtype(t);
  check(d.has_value(), "element type ", elem_name(t), " is no type of tensors");
  return *d;
}
const std::string& NodeContext::device() const { return run_.device(); }

}  // namespace tg::onnx
