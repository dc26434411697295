/// \file What a JitCore knows of its capture besides the launches; for the files that capture, call and store.
#pragma once
#include "tinygrad/engine/replay.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/jit.h"
#include "tinygrad/tensor/jit_outside.h"
#include "tinygrad/tensor/random.h"

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
  std::vector<UOpRef> patterns;  ///< of the inputs
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::string>> constants;
  std::vector<std::string> arguments;  ///< the bound variables it is called with, in order, without their values
  std::vector<std::string> variables;  ///< by index of the values a replay is given: after them the keys of `draws`
  std::vector<rng::Draw> draws;
  std::vector<Output> outputs;
  std::vector<std::pair<std::string, std::string>> flags;  ///< variables of the library that change values, as they were
  std::vector<tensor_detail::LeftGradient> gradients;      ///< that it leaves or adds to
  std::vector<size_t> input_gradients;                     ///< inputs that got a gradient nobody asked for
  std::vector<BufferRef> fresh;                            ///< memory of the outputs of the last call
  std::vector<UOpRef> fresh_nodes;                         ///< shape STACKs of their BUFFERs
  std::vector<tensor_detail::Touched> touched;             ///< all memory that is neither input nor fresh
};

namespace tensor_detail {
/// The BUFFER below the views a tensor is; empty when something else is in the way.
UOp buffer_below(UOp u);
BufferRef memory_of_node(UOp buffer);
/// A view without what differs from call to call: its storage is a parameter, its variables are unbound. What was bound goes to `vars`.
UOp view_pattern(UOp u, std::vector<std::pair<std::string, int64_t>>* vars);
}  // namespace tensor_detail

}  // namespace tg
