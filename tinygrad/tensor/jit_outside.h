/// \file What a captured function leaves behind besides its results: gradients, and tensors that somebody else holds.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tinygrad/engine/replay.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// A gradient that a captured function leaves at a tensor: replays write it where it was, and attach it again.
struct LeftGradient {
  std::weak_ptr<Tensor::Impl> owner;
  std::shared_ptr<Tensor::Impl> grad;
  bool absent = false;                            ///< there was none before the call: replays expect none
  bool grown = false;                             ///< it was there before the call, which added to it: replays expect it
  int input = -1;                                 ///< the owner is this argument
  void check(const std::string& function) const;  ///< JitError when a replay would give another gradient than the function
  void attach() const;
};

/// The live tensors before a function runs.
class Outside {
 public:
  Outside();
  /// Gradients that live tensors got since, other than `inputs` whose gradient nobody asked for.
  std::vector<LeftGradient> gradients(const Tensors& inputs) const;
  /// Gradients that were there before and stayed.
  std::vector<LeftGradient> kept() const;
  /// What a replay could not give again, as text for an error; empty: nothing. `made`: memory the function made.
  std::string leaks(const Tensors& inputs, const Tensors& results, const std::vector<LeftGradient>& gradients,
                    const std::unordered_set<const Buffer*>& made, const std::vector<RecordedRun>& runs) const;

 private:
  struct One {
    std::weak_ptr<Tensor::Impl> impl;
    std::weak_ptr<Tensor::Impl> grad;
    bool had_grad = false;
  };
  const One* find(const Tensor::Impl* i) const;
  std::unordered_map<const Tensor::Impl*, One> tensors_;
  std::unordered_map<const Buffer*, std::weak_ptr<Buffer>> memory_;
};

/// Frees what only a cycle of references holds; set by languages that have such cycles.
void set_jit_collector(void (*f)());
void collect_garbage();

}  // namespace tg::tensor_detail
