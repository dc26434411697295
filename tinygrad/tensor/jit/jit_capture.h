/// \file The run that captures a function, in phases; for the files of the JIT.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/jit/jit_snapshot.h"
#include "tinygrad/tensor/jit/jit_state.h"

namespace tg {

class JitCore::Capture {
 public:
  Capture(JitCore& core, const JitInputs& in, const Body& body, std::vector<Input> inputs);
  /// Runs the function. Replays do the same from then on, unless what it left outside needs another look. JitError for
  /// what cannot be captured.
  Tensors run();

 private:
  bool is_wanted(size_t argument) const;
  Tensors without_gradient() const;
  void flush_outside();
  void store_slots(Tensors& pending);
  void record();
  Tensors find_escaped() const;
  bool pair_slots();
  void store_slot_values();
  void write_back(const Tensor& t, UOp storage, UOp value);
  bool needs_another_run();
  void check_something_captured() const;
  void describe_arguments();
  bool owns_storage(size_t i) const;
  void classify_outputs();
  void check_bound(UOp view);
  int index_of_variable(const std::string& name, int64_t value);
  void finish();
  void track_memory(const Replay& replay, const std::unordered_set<const Buffer*>& made);
  void add_written_gradients();
  Tensors results() const;

  JitCore& core_;
  const JitInputs& in_;
  const Tensors arguments_;  ///< the inputs, then those of which they are shards
  const Body& body_;
  std::vector<Input> inputs_;
  std::unique_ptr<State> state_;
  size_t results_ = 0;  ///< of `out_`; gradients of inputs follow
  ReplayPlan plan_;
  rng::TrainingRead training_{Tensor::training()};
  tensor_detail::TensorSnapshot before_;
  Tensors out_;
  std::vector<bool> shared_;  ///< by result: somebody else holds its handle
  Tensors escaped_, changed_;
  bool replaced_ = false;             ///< the program has replaced what the run before left in a slot
  bool slots_match_ = true;           ///< what the last two runs left are the same slots
  tensor_detail::BoundValues bound_;  ///< variables with their values in this call
  std::unordered_map<const Buffer*, size_t> input_of_;
  std::string free_;  ///< a variable that no argument binds
};

}  // namespace tg
