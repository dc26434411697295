/// \file Run: one execution of a model's graph, which builds the expressions of its outputs.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tinygrad/onnx/graph_plan.h"
#include "tinygrad/onnx/graph_value.h"

namespace tg::onnx {

/// The values of one graph, of a branch or body inside of it (whose parent it is), or of one call of a function.
struct Frame {
  const Frame* parent = nullptr;  ///< whose values may be used as well
  std::unordered_map<std::string_view, Value> values;
  /// The call's attributes in the body of a function, by name.
  const std::unordered_map<std::string_view, const Attribute*>* bindings = nullptr;
  const OpsetImports* opsets = nullptr;

  /// Returns the value of a name, null where there is none.
  const Value* find(std::string_view name) const;
  /// Returns what the call of the enclosing function gives for one of its attributes.
  const Attribute* bound(std::string_view name) const;
  int64_t opset(std::string_view domain) const;
};

/// What one run may use: models of any size in files of any source end.
struct RunLimits {
  int64_t nodes = 1 << 19;  ///< that are executed, those of loops in each iteration; an iteration counts as well
  int64_t read = int64_t{1} << 26;   ///< elements that the host reads of one tensor
  int64_t bytes = int64_t{1} << 29;  ///< of the texts and tables that operators make on the host
};

/// What a model and its runs share; see model.h.
struct RunOptions {
  std::string device;
  DType float_type = dtypes::float32;
  bool trainable = false;  ///< no constant is folded or becomes a literal
  bool trace = false;      ///< prints each node
  int64_t limit = -1;      ///< the number of the last node that is executed; -1: all are
  RunLimits most = {};
};

/// The constants of a file as values, each made once for all runs of a model.
class ConstantPool {
 public:
  /// Returns a constant as nodes see it: small ones on the host, unless they are to be trained.
  Value get(const TensorProto& t, const RunOptions& options);

 private:
  std::mutex lock_;
  std::unordered_map<const TensorProto*, Value> made_;
};

class Run {
 public:
  /// What read() may read: anything, by which the run then decides, or what depends on constants alone.
  enum class Reads : uint8_t { kAnything, kConstants };
  Run(const PlannedModel& model, const RunOptions& options, ConstantPool& constants, Reads reads = Reads::kAnything)
      : model_(model), options_(options), constants_(constants), reads_(reads) {}

  /// Executes the nodes of a plan in a frame that has the inputs.
  void execute(const GraphPlan& plan, Frame& frame);
  /// Executes a branch or body with values for its inputs; returns its outputs.
  Values call_graph(const GraphProto& graph, const Values& inputs, const Frame& parent);
  /// Reads a tensor's elements on the host, by which the run goes on: sizes, conditions and the like. See
  /// JitCore::decide for calls inside of captured functions.
  HostRef read(const Tensor& t) const;
  /// Reads elements that results are made of. JitError inside of a function that is being captured.
  HostRef read_data(const Tensor& t) const;
  /// Counts a node, or an iteration of a loop whose body may have none. FormatError when there are too many.
  void count_step();
  /// Counts elements of texts or tables that an operator makes on the host. FormatError when there are too many bytes.
  void count_bytes(int64_t elements, size_t each);

  const std::string& device() const { return options_.device; }
  DType float_type() const { return options_.float_type; }
  const PlannedModel& model() const { return model_; }
  /// Outputs of the node at which `limit` ended the run.
  const Node* stopped_at() const { return stopped_at_; }

  Value constant(const TensorProto& t) const { return constants_.get(t, options_); }

 private:
  Values execute_node(const Node& node, Frame& frame);
  Values call_function(const FunctionProto& f, const Node& node, const Values& inputs, const Frame& caller);
  void store(const Node& node, Values&& results, Frame& frame) const;

  const PlannedModel& model_;
  const RunOptions& options_;
  ConstantPool& constants_;
  Reads reads_;
  size_t number_ = 0;  ///< of the node of the main graph that is executed
  const Node* stopped_at_ = nullptr;
  int depth_ = 0;
  int64_t executed_ = 0, bytes_ = 0;
};

}  // namespace tg::onnx
