/// \file CapturedModel: a model whose calls are replays, at any size within a range.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tinygrad/onnx/model.h"

namespace tg::onnx {

/// Sizes of an axis, the ends included.
struct SizeRange {
  int64_t least = 1, most = 1;
};

/// Calls of a model as a captured function (tensor/jit/jit.h): the first two run its nodes, later ones replay what they
/// launched. Sizes that have a range are variables: one capture serves every size within it, and no kernel is compiled
/// for another size. Inputs of such sizes are copied, into storage for the largest ones. Each combination of the other
/// sizes and types has a capture of its own, the eight that were used last. Several threads may call one at once; calls
/// exclude each other.
class CapturedModel {
 public:
  /// Ranges by the names that the model's inputs have for sizes, or "INPUT.AXIS" for a size without a name. Names with
  /// "=" between are one size: "input.0=state.1". ValueError for one that no input has, or an empty range.
  explicit CapturedModel(Model model, std::map<std::string, SizeRange> ranges = {});
  CapturedModel(CapturedModel&&) noexcept;
  CapturedModel& operator=(CapturedModel&&) noexcept;
  ~CapturedModel();

  /// Computes the outputs; they stay as they are when others are computed. ShapeError for a size out of its range;
  /// otherwise errors as Model::run, and JitError for a model that cannot be captured (docs/onnx.md).
  std::map<std::string, Tensor> operator()(const std::map<std::string, Tensor>& inputs);
  /// Does so for a model with one input and one output. ValueError for another.
  Tensor operator()(const Tensor& x);
  const Model& model() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tg::onnx
