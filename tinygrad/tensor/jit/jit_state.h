/// \file What a JitCore knows of its capture besides the launches; for the files that capture, call and store.
#pragma once
#include "tinygrad/engine/replay.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/jit/jit_decisions.h"
#include "tinygrad/tensor/jit/jit_snapshot.h"
#include "tinygrad/tensor/ops/random.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"

namespace tg {

/// A tensor it is called with.
struct JitCore::Input {
  UOpRef node;     ///< the BUFFER
  UOpRef pattern;  ///< see pattern_of
  BufferRef memory;
};
/// A tensor it returns.
struct JitCore::Output {
  enum Kind : uint8_t { kFresh, kInput, kFixed } kind = kFixed;
  size_t index = 0;  ///< kFresh: which of the replay's outputs, kInput: which input
  UOpRef pattern;    ///< kFresh, kInput: the view
  Tensor fixed;      ///< kFixed: storage that stays where it is, or a constant
  std::optional<bool> requires_grad;
};
struct JitCore::State {
  using Constants = std::vector<std::pair<std::string, std::string>>;
  /// Whether it was captured with constants like these.
  bool accepts(const Constants& given) const;
  bool same_effects(const std::vector<StoredMemory>& memory, const State& other,
                    const std::vector<StoredMemory>& there) const;
  void add_constants(const Constants& more);

  /// What it left outside besides results: replays write it. Where that is gone, another one is in its place.
  std::vector<std::weak_ptr<Tensor::Impl>> left;
  std::vector<UOpRef> patterns;  ///< of the inputs
  std::vector<std::string> names;
  Constants constants;
  std::vector<std::string> arguments;  ///< the bound variables it is called with, in order, without their values
  std::vector<std::string> variables;  ///< by index of the values a replay is given: after them the keys of `draws`
  std::vector<rng::Draw> draws;
  std::vector<Output> outputs;
  Constants flags;  ///< variables of the library that change values, as they were
  std::vector<tensor_detail::EscapingGradient> gradients;  ///< that it leaves or adds to
  /// What happens to the gradient of an input, whether it had one before, and which tensor it was.
  struct InputState {
    tensor_detail::InputGradient gradient = tensor_detail::InputGradient::kNone;
    bool had_gradient = false;
    std::weak_ptr<Tensor::Impl> tensor;
  };
  std::vector<InputState> inputs;
  std::vector<InputState> wholes;   ///< the same of arguments that lie on several devices
  size_t results = 0;               ///< of `outputs`; those after them are gradients of inputs, in their order
  tensor_detail::Leaves leaves;     ///< storage outside that its results depend on, for errors of gradients
  std::vector<BufferRef> fresh;     ///< memory of the outputs of the last call
  std::vector<UOpRef> fresh_nodes;  ///< shape STACKs of their BUFFERs
  std::vector<tensor_detail::TrackedMemory> tracked;  ///< all memory that is neither input nor fresh
  std::vector<bool> made_external;                    ///< of that memory: the function made it
  /// Of that memory: the tensor that showed it when it was captured, as text; empty where none from outside did. When
  /// no tensor shows it any more the function would read another one.
  std::vector<std::string> shown_by;
  std::vector<Constants> alike;      ///< other constants that were captured with the same record
  std::vector<std::string> ignored;  ///< constants that do not matter, by name
  Decisions decisions;
};

/// What an uncaptured run of the function left outside. The next run shows what that means: a tensor made once, or one
/// that every call replaces.
struct JitCore::DryRun {
  /// A tensor somebody outside holds.
  struct Slot {
    std::weak_ptr<Tensor::Impl> impl;
    UOpRef storage;  ///< once the next run begins: BUFFER of its value that nobody else has
    UOpRef before;   ///< what it was then
    Shape shape;
    DType dtype;
    Hash128 expression;
    bool result = false;  ///< it was a result too
  };
  int number = 1;  ///< of the dry runs so far
  std::vector<Slot> escaped;
  std::vector<std::weak_ptr<Tensor::Impl>> constants;  ///< tensors without storage that were assigned to
};

/// A capture that is not the current one.
struct JitCore::Recorded {
  std::unique_ptr<Replay> replay;
  std::unique_ptr<State> state;
  std::shared_ptr<const Multi> multi;
  size_t number = 0;
};

namespace tensor_detail {
/// Begins the name of the constant that says how an argument is sharded.
inline const std::string kShardingOf = "the sharding of ";
/// Whether functions are captured and replayed: with JIT=0 every call runs them, and with CHECK_INDEX=1, which reads
/// the indices of every call.
bool captures_functions();
/// A variable of the library as text.
std::string flag_text(const std::string& name);
/// Computes results of a jitted function. They are storage from then on: what they were computed from belongs to the
/// call. Weak ones get the default type: without storage a replay could not give them new values.
void realize_results(const Tensors& out);
}  // namespace tensor_detail

}  // namespace tg
