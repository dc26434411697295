/// \file The run that captures a function, in phases; for the files of the JIT.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tinygrad/tensor/jit_snapshot.h"
#include "tinygrad/tensor/jit_state.h"
#include "tinygrad/tensor/lower_multi.h"

namespace tg {

class JitCore::Capture {
 public:
  Capture(JitCore& core, const JitInputs& in, const Body& body, std::vector<Input> inputs);
  /// Runs the function. Replays do the same from then on, unless what it left outside needs another look. JitError for
  /// what cannot be captured.
  Tensors run();

 private:
  bool is_wanted(size_t input) const;
  void store_pending();
  void store_slots(Tensors& pending);
  void record();
  Tensors find_left() const;
  void keep_slots();
  bool needs_another_run();
  void check_something_captured() const;
  void describe_arguments();
  bool owns_storage(size_t i) const;
  void describe_outputs();
  void finish();
  Tensors results() const;

  JitCore& core_;
  const JitInputs& in_;
  const Body& body_;
  std::vector<Input> inputs_;
  std::unique_ptr<State> state_;
  size_t results_ = 0;  ///< of `out_`; gradients of inputs follow
  ReplayPlan plan_;
  rng::TrainingRead training_{Tensor::training()};
  tensor_detail::TensorSnapshot before_;
  std::vector<std::weak_ptr<Tensor::Impl>> waiting_;  ///< pending outside before the call
  Tensors out_;
  std::vector<bool> shared_;  ///< by result: somebody else holds its handle
  Tensors left_, changed_;
  bool settled_ = true;                                 ///< what the last two runs left are the same slots
  std::vector<std::pair<std::string, int64_t>> bound_;  ///< variables with their values in this call
  std::unordered_map<const Buffer*, size_t> input_of_;
  std::string free_;  ///< a variable that no argument binds
};

}  // namespace tg
