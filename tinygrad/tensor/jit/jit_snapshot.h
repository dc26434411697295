/// \file What a captured function leaves behind besides its results: gradients, and tensors that somebody else holds.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tinygrad/engine/replay.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// A gradient that a captured function leaves at a tensor: replays write it where it was, and attach it again.
struct EscapingGradient {
  std::weak_ptr<Tensor::Impl> owner;
  std::shared_ptr<Tensor::Impl> grad;
  bool absent = false;  ///< there was none before the call: replays expect none
  bool grown = false;   ///< it was there before the call, which added to it: replays expect it
  bool fits() const;    ///< whether a replay would give the gradient that the function gives
  void attach() const;
};

/// What a function does to the gradient of one of its arguments.
enum class InputGradient : uint8_t {
  kNone,      ///< nothing
  kGiven,     ///< makes one, which is a result: attached to the argument of each call
  kUnwanted,  ///< makes one nobody asked for: replays leave it out
  kAdded,     ///< adds to the one that is there, a EscapingGradient
};

/// The live tensors before a function runs.
class TensorSnapshot {
 public:
  TensorSnapshot();
  /// Gradients that live tensors other than `inputs` got since, from this thread.
  std::vector<EscapingGradient> gradients(const Tensors& inputs) const;
  /// Gradients that were there before and stayed; of `unwanted` tensors none.
  std::vector<EscapingGradient> kept(const Tensors& unwanted) const;
  /// What happened to the gradient of an argument; `wanted`: somebody looks at it.
  InputGradient of_input(const Tensor& input, bool wanted) const;

  bool had_gradient(const Tensor& t) const;
  /// Memory that was there before, and that which tensors from before show now.
  std::unordered_set<const Buffer*> memory() const;

  /// Tensors that this thread made since and that somebody else than `inputs`, `results` and their gradients holds,
  /// oldest first: pending ones, and those in memory the function made (`made`).
  Tensors escaped(const Tensors& inputs, const Tensors& results, const std::vector<EscapingGradient>& gradients,
                  const std::unordered_set<const Buffer*>& made) const;
  /// Tensors without storage whose expression this thread has changed: assigning to constants does that.
  Tensors changed_expressions(const Tensors& inputs) const;
  /// What a replay could not give again, as text for an error; empty: nothing.
  std::string stale_reads(const Tensors& inputs, const std::vector<RecordedRun>& runs) const;

 private:
  struct One {
    std::weak_ptr<Tensor::Impl> impl;
    std::weak_ptr<Tensor::Impl> grad;
    bool had_grad = false;
    std::optional<Hash128> expression;  ///< of one without storage
  };
  const One* find(const Tensor::Impl* i) const;
  std::unordered_map<const Tensor::Impl*, One> tensors_;
  std::unordered_map<const Buffer*, std::weak_ptr<Buffer>> memory_;
};

/// Frees what only a cycle of references holds; set by languages that have such cycles.
void set_jit_collector(void (*f)());
void collect_garbage();

}  // namespace tg::tensor_detail
