/// \file Model: a trained network from an ONNX file, as a function of tensors.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/base/host_bytes.h"
#include "tinygrad/nn/state.h"
#include "tinygrad/onnx/graph_value.h"
#include "tinygrad/onnx/proto.h"

namespace tg::onnx {

struct ModelOptions {
  std::string device = {};               ///< where the constants are; "" for the default device
  std::optional<DType> float_type = {};  ///< float16 or bfloat16: what float32 values become
  /// Whether the constants are trained: each stays a tensor of its own (see parameters()), nothing is computed ahead.
  bool trainable = false;
};

/// A model of an ONNX file. Calls build the expressions of its outputs and compute nothing that does not have to be
/// known on the host, so that a call inside of a captured function (tensor/jit/jit.h) is a replay. Constants stay in
/// the mapped file until they are used; what depends on them alone is computed at the first call. Copies share the
/// model; several threads may call one at once. See docs/onnx.md.
class Model {
 public:
  /// A value by name.
  using NamedValues = std::vector<std::pair<std::string, Value>>;

  /// Reads a file. FileError when it cannot be read, FormatError when it is no ONNX model or a damaged one: the message
  /// names node and field.
  static Model from_file(const std::filesystem::path& path, const ModelOptions& o = {});
  /// Reads a model in memory. `folder`: where data outside of it may lie, "" for nowhere. FormatError as from_file.
  static Model from_bytes(HostBytes bytes, const ModelOptions& o = {}, const std::filesystem::path& folder = {});
  /// Reads a stream to its end. FormatError as from_file.
  static Model from_stream(std::istream& in, const ModelOptions& o = {});

  /// Returns the inputs a call needs, and the outputs it gives, in the order of the file. Sizes may be names: equal
  /// names are equal sizes.
  const std::vector<ValueInfo>& inputs() const;
  const std::vector<ValueInfo>& outputs() const;
  /// Returns what the file says of itself: its graph, texts and versions. Valid as long as the model.
  const ModelProto& proto() const;

  /// Returns the name of the input of a model that has one input and one output. ValueError for another.
  std::string sole_input() const;

  /// Computes the outputs of named inputs. An input of another element type is converted. ValueError for an input that
  /// is missing or unknown, ShapeError for one of another shape than the file says; FormatError for an operator,
  /// attribute or type that is not supported, with what is; errors of a node begin with its name.
  NamedValues run(const NamedValues& inputs) const;
  /// Does so for tensors. ValueError for an output that is no tensor.
  std::map<std::string, Tensor> operator()(const std::map<std::string, Tensor>& inputs) const;
  /// Does so for a model with one input and one output. ValueError for another.
  Tensor operator()(const Tensor& x) const;

  /// Returns the model with its constants on another device. DeviceError for one that cannot be opened.
  Model to(const std::string& device) const;
  /// Returns the float constants by name: all of a model that is trainable, of others those that are no literals.
  nn::StateDict parameters() const;

  /// Prints each node while it runs (`trace`), and ends a run after node number `limit`, whose outputs it returns. No
  /// other thread may be calling the model.
  void debug(bool trace, int64_t limit = -1);

 private:
  struct State;
  explicit Model(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static Model of_proto(ModelProto proto, const ModelOptions& o);
  std::shared_ptr<State> state_;
};

}  // namespace tg::onnx
