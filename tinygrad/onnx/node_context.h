/// \file NodeContext: what the builder of an operator sees of a node: inputs as it needs them, attributes with their
/// types checked, and the run it belongs to.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/onnx/graph_value.h"

namespace tg::onnx {

class Run;
struct Frame;

/// Errors of a node begin with its name and operator: the run adds them.
class NodeContext {
 public:
  NodeContext(const Node& node, int64_t opset, Run& run, Frame& frame, Values inputs)
      : node_(node), opset_(opset), run_(run), frame_(frame), inputs_(std::move(inputs)) {}

  const Node& node() const { return node_; }
  int64_t opset() const { return opset_; }  ///< the version of the node's domain that the model is written for
  Run& run() const { return run_; }
  Frame& frame() const { return frame_; }

  // ---- inputs ----
  size_t count() const { return inputs_.size(); }
  const Values& values() const { return inputs_; }
  /// Returns whether input `i` is there and has a value.
  bool has(size_t i) const { return i < inputs_.size() && !inputs_[i].is_none(); }
  /// Returns input `i`; FormatError where it is left out.
  const Value& value(size_t i) const;
  /// Returns the input as a tensor; FormatError for other kinds.
  Tensor tensor(size_t i) const;
  /// Returns the input as a tensor, undefined where it is left out.
  Tensor optional_tensor(size_t i) const { return has(i) ? tensor(i) : Tensor(); }
  Tensors tensors(size_t from = 0) const;
  const StringArray& strings(size_t i) const;
  const Sequence& sequence(size_t i) const;
  const ValueMap& map(size_t i) const;
  /// Returns the input's elements, reading a tensor on the host.
  HostRef host(size_t i) const;
  /// The same for values that results are made of, unlike sizes and axes: a captured function cannot read them.
  HostRef data(size_t i) const;
  /// Returns the elements if the host has them, without reading anything.
  const HostArray* known(size_t i) const { return i < inputs_.size() ? inputs_[i].host() : nullptr; }
  /// Returns integers of the input; `sizes` may be symbolic.
  std::vector<int64_t> ints(size_t i) const;
  Shape sizes(size_t i) const;
  std::vector<double> numbers(size_t i) const;
  int64_t integer(size_t i) const;
  double number(size_t i) const;
  /// The same, of an input that may be left out.
  int64_t integer_or(size_t i, int64_t otherwise) const { return has(i) ? integer(i) : otherwise; }
  double number_or(size_t i, double otherwise) const { return has(i) ? number(i) : otherwise; }

  // ---- outputs ----
  size_t outputs() const { return node_.outputs.size(); }
  /// Returns whether the node has output `i` and gives it a name.
  bool wants(size_t i) const { return i < outputs() && !node_.outputs[i].empty(); }

  // ---- attributes: FormatError where one is missing that has no default, or is of another type ----
  bool has_attribute(std::string_view name) const { return find(name) != nullptr; }
  int64_t attr(std::string_view name, int64_t otherwise) const;
  double attr(std::string_view name, double otherwise) const;
  std::string attr(std::string_view name, const char* otherwise) const;
  bool flag(std::string_view name, bool otherwise = false) const { return attr(name, int64_t{otherwise}) != 0; }
  int64_t required_int(std::string_view name) const;
  std::optional<int64_t> optional_int(std::string_view name) const;
  std::vector<int64_t> attr_ints(std::string_view name, std::vector<int64_t> otherwise = {}) const;
  std::vector<double> attr_floats(std::string_view name, std::vector<double> otherwise = {}) const;
  std::vector<std::string> attr_strings(std::string_view name, std::vector<std::string> otherwise = {}) const;
  const TensorProto* attr_tensor(std::string_view name) const;
  const GraphProto& graph(std::string_view name) const;
  const Attribute* find(std::string_view name) const;
  /// A text attribute that must be one of some.
  std::string choice(std::string_view name, const char* otherwise, std::initializer_list<const char*> known) const;

  // ---- types ----
  /// Returns the tensor type of an element type in a model; FLOAT is what the model was converted to.
  DType dtype_of(ElemType t) const;
  const std::string& device() const;

  /// Throws a FormatError about this node.
  template <class... A> [[noreturn]] void fail(const A&... a) const { throw FormatError(str(a...)); }
  template <class... A> void check(bool condition, const A&... a) const {
    if (!condition) fail(a...);
  }

 private:
  const Attribute* typed(std::string_view name, Attribute::Type type, const char* type_name) const;

  const Node& node_;
  int64_t opset_;
  Run& run_;
  Frame& frame_;
  Values inputs_;
};

/// Returns axis `axis` of `rank` counted from the front; IndexError when there is none.
int normal_axis(int64_t axis, int64_t rank);
std::vector<int> normal_axes(const std::vector<int64_t>& axes, int64_t rank);

}  // namespace tg::onnx
