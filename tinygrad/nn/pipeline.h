/// \file Models whose layers lie on several processes, one stage each, trained with microbatches under way in all of
/// them.
///
///     const Mesh mesh({{"pipe", -1}});
///     const auto [first, last] = nn::stage_layers(std::ssize(model.blocks), mesh);
///     nn::Pipeline pipeline(run_layers, cross_entropy, parameters, mesh, {.microbatches = 8});
///     opt.zero_grad();
///     const Tensor loss = pipeline.step(x, y);   // forward and backward
///     opt.step();
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/tensor/multi/mesh_tensor.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

struct PipelineOptions {
  int64_t microbatches = 4;   ///< parts of a batch along axis 0
  std::string axis = "pipe";  ///< of the mesh, along which the stages follow each other
  /// Along which processes have copies of a stage; a mesh need not have it. All begin with the parameters of the first.
  std::string copies = "data";
};

/// Returns which of `layers` layers the stage of this process has: from the first up to the second number. Earlier
/// stages have one more where they do not divide equally. ValueError for fewer layers than stages.
std::pair<int64_t, int64_t> stage_layers(int64_t layers, const Mesh& mesh, const std::string& axis = "pipe");

/// Runs stages by the schedule 1F1B: a process has at most as many microbatches under way as there are stages from it
/// on, and computes backward and forward alternately. Of a microbatch it keeps what came from the stage before, and
/// computes the rest again for its gradients; the last stage computes both at once.
class Pipeline {
 public:
  /// What this process computes of a microbatch: the first stage from the batch, others from the stage before.
  using Stage = std::function<Tensor(const Tensor&)>;
  /// The mean loss of a microbatch from the last stage's result and the labels.
  using Loss = std::function<Tensor(const Tensor& result, const Tensor& labels)>;

  /// `params`: those of this stage. Throws ValueError for a mesh without the axis and for no microbatches.
  Pipeline(Stage stage, Loss loss, const Tensors& params, const Mesh& mesh, const PipelineOptions& o = {});

  /// Adds the gradients of the mean loss of a batch to those of the parameters, computed, and returns that loss, a
  /// float32 scalar, in all processes. The first stage reads `x`, the last one `labels`; all have tensors of their
  /// shapes. Of copies each has rows of its own. ShapeError when the microbatches do not divide the rows, and for
  /// a stage whose result changes its shape or type while that of the batch stays; ValueError for a stage's result of
  /// more than 8 axes.
  Tensor step(const Tensor& x, const Tensor& labels);

  /// Returns the number of this process' stage, and of all.
  int64_t stage() const { return stage_; }
  int64_t stages() const { return stages_; }

 private:
  struct Microbatch {
    Tensor input, output;  // the last stage's output is its loss
  };
  /// Returns the part of a tensor that microbatch i has.
  Tensor part(const Tensor& t, int64_t i) const;
  /// Hears from the stage before what its results are like: once for batches of a shape.
  void hear_shapes();
  /// Tells the stage behind what a result is like, unless it has `heard` of batches of this shape. ShapeError for
  /// another result than it heard of.
  void tell_shapes(const Tensor& result, bool heard);
  Tensor placeholder() const;
  Tensor input(const Tensor& x, int64_t i) const;
  Microbatch forward(const Tensor& input, const Tensor& labels, int64_t i) const;
  /// Computes the gradients, and whatever else is given, and sends that of the input to where it came from.
  void backward(const Microbatch& m, const Tensor& gradient, Tensors also) const;
  /// Returns the loss of all, and makes the gradients of copies the same.
  Tensor combined(const Tensors& losses) const;
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }

  Stage run_;
  Loss loss_;
  Tensors params_;
  Mesh mesh_;
  PipelineOptions o_;
  int64_t stage_, stages_, copies_ = 1;
  int before_ = -1, behind_ = -1;  // ranks of the neighbours
  Shape batch_{};                  // of the step from which the card is
  std::vector<int64_t> card_{};    // what the results of the stage before are like
  std::vector<int64_t> told_{};    // what the stage behind knows of ours
};

}  // namespace tg::nn
