/// \file Models on several processes: which weights are divided along which axes of a mesh, and how they are used.
///
///     const Mesh mesh({{"data", 2}, {"tensor", 2}});
///     auto parallel = nn::parallelize(model, mesh, {.zero = 3});
///     nn::AdamW opt(nn::get_parameters(model));
///     Tensor loss = parallel(x).cross_entropy(parallel.batch(y));
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/nn/optim.h"
#include "tinygrad/nn/state.h"
#include "tinygrad/tensor/multi/mesh_tensor.h"

namespace tg::nn {

/// How a layer is divided among the processes along the tensor axis of a mesh.
enum class Division {
  kWhole,   ///< each has all of it
  kColumn,  ///< axis 0 of its tensors: a Linear computes a part of its outputs
  kRow,     ///< axis 1 of its weight: a Linear takes a part of its inputs, an Embedding gives a part of its width
  kThirds,  ///< axis 0, which is queries, keys and values one after the other: a part of each, "tensor:3" in specs
  kHalves,  ///< axis 0, which is the gate and what it multiplies one after the other: a part of both, "tensor:2"
};

/// A pattern of names of the state, in which * is any text, and what becomes of the tensors it fits.
using DivisionRule = std::pair<std::string, Division>;

struct ParallelPlan {
  std::string data = "data";      ///< axis of the mesh along which batches are divided; a mesh need not have it
  std::string tensor = "tensor";  ///< axis along which layers are divided; likewise
  /// What else is divided along `data`: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 weights too (FSDP).
  int zero = 0;
  /// By name; the first pattern that fits counts. None: default_divisions().
  std::vector<DivisionRule> divisions = {};
  bool sequence = false;              ///< axis 1 of batches is divided along `tensor`
  std::optional<DType> compute = {};  ///< type of weights in the forward pass; they are kept and trained in their own
  int64_t whole_below = 1024;         ///< tensors of fewer elements are not divided along `data`
  /// Heads of attention, and those of keys and values where they are fewer; 0: not told. Those that are told must be
  /// multiples of the processes along `tensor`.
  int64_t heads = 0, kv_heads = 0;
  /// What several processes along `data` and `tensor` have whole begins as what the first of them has. false: nothing
  /// is sent, all have it alike already.
  bool sync = true;
};

/// Returns rules for the names that transformers usually have: projections to queries, keys, values and to the hidden
/// layer by column, those behind them by row; one matrix for queries, keys and values by thirds, one for gate and
/// hidden layer by halves. A name they do not fit is whole, and so is a tensor whose size is no multiple, and a matrix
/// for queries, keys and values that are not equally many.
const std::vector<DivisionRule>& default_divisions();

/// The weights of a model on a mesh. The model's tensors are moved to it, those that are not divided as the first
/// process has them; their values, gradients and losses are those of one process. The model must outlive it.
class ParallelState {
 public:
  /// Moves the tensors of `state`. Throws ValueError for a plan with a pattern that fits no name, a stage other than 0
  /// to 3, or without any axis of the mesh; ShapeError where a rule divides a size that is no multiple, and where
  /// the plan's heads are none: it names the projection, the heads and the processes.
  ParallelState(const StateDict& state, const Mesh& mesh, const ParallelPlan& plan);

  /// Returns the mesh.
  const Mesh& mesh() const { return mesh_; }
  /// Returns the plan.
  const ParallelPlan& plan() const { return plan_; }
  /// Returns the axis of the mesh for each axis of a tensor of the state, "" for none, as it is kept between steps.
  /// IndexError for an unknown name.
  const std::vector<std::string>& spec(const std::string& name) const;

  /// Places a batch that all processes have: each keeps its rows, of a sequence its part. Shape and type are those of
  /// the whole batch. ShapeError when sizes are no multiples.
  Tensor batch(const Tensor& whole) const;
  /// Places the rows that this process has of a batch: a tensor of the rows of all of one type. ShapeError as batch().
  Tensor batch_of(const Tensor& rows) const;

  /// Adds gradients as Tensor::backward, whose errors it has; from stage 2 on each process keeps its slices of them.
  /// Returns the loss, in its shape and type.
  Tensor backward(const Tensor& loss) const;
  /// Divides the optimizer's state, which is of these weights: from stage 1 on. ValueError for a fused optimizer.
  void place_state(const Optimizer& optimizer) const;
  /// Divides tensors of a weight's shape that train it, as place_state() does; others are left alone.
  void place_state_of(const Tensor& weight, const Tensors& state) const;

  /// Calls `f` with the weights as the forward pass uses them: gathered, of the type to compute in. Gradients of its
  /// result are asked for behind it.
  template <class F> auto run(F&& f) const {
    const Use use(*this);
    return std::forward<F>(f)();
  }

 private:
  struct Weight {
    std::string name;
    Tensor tensor;                               // the model's handle
    std::vector<std::string> kept, used, state;  // its axes between steps, in the forward pass, and of what trains it
  };
  /// The weights as the forward pass uses them, until the end of the scope.
  class Use {
   public:
    explicit Use(const ParallelState& s);
    ~Use();
    Use(const Use&) = delete;

   private:
    std::vector<std::pair<Tensor, Tensor>> changed_;  // the model's handle and its other value
  };
  Division division_of(const std::string& name, std::vector<bool>& used) const;
  void check_heads(const std::string& name, Division division) const;
  bool is_equal_thirds(const StateDict& state, const std::string& name) const;
  Weight placed(const std::string& name, const Tensor& t, Division division, bool by_rule) const;
  void take_from_first(const Weight& w) const;
  int64_t size(const std::string& axis) const;
  const Weight* weight_of(const Tensor& t) const;

  Mesh mesh_;
  ParallelPlan plan_;
  std::vector<Weight> weights_;
};

/// A model on a mesh: called as the model is, with batches that all processes have or that batch() placed.
template <class M> class Parallel : public ParallelState {
 public:
  Parallel(const M& model, const Mesh& mesh, const ParallelPlan& plan)
      : ParallelState(get_state_dict(model), mesh, plan), model_(&model) {}
  template <class... Args> auto operator()(const Tensor& x, Args&&... more) const {
    const Tensor placed = batch(x);
    return run([&] { return (*model_)(placed, std::forward<Args>(more)...); });
  }

 private:
  const M* model_;
};

/// Divides a model among the processes of a mesh: see ParallelState, whose errors it has.
template <class M> Parallel<M> parallelize(const M& model, const Mesh& mesh, const ParallelPlan& plan = {}) {
  return Parallel<M>(model, mesh, plan);
}

}  // namespace tg::nn
