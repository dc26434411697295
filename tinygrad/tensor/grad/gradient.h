/// \file Reverse-mode differentiation as a transformation of graphs.
#pragma once
#include <span>
#include <vector>

#include "tinygrad/uop/rewrite.h"

namespace tg {

/// Gradients for the sources of one node, in order; an empty UOp: none.
struct Grads {
  UOps g;
  bool matched = false;
  Grads() = default;
  Grads(std::initializer_list<UOp> l) : g(l), matched(true) {}
  explicit Grads(UOps l) : g(std::move(l)), matched(true) {}
  explicit operator bool() const { return matched; }
};
/// The context of gradient rules: the gradient that arrives at the node, of the node's shape and type.
struct Upstream {
  UOp g;
};

/// The table: one rule for each differentiable op.
const PatternMatcher<Grads>& pm_gradient();
/// Elementwise ops without a rule: those of integers and bools alone, whose values no gradient passes.
inline constexpr OpSet kNoGradient = Ops::SHL | Ops::SHR | Ops::CDIV | Ops::XOR | Ops::OR | Ops::AND | Ops::THREEFRY;

/// Gradients of sum(root * seed) with respect to each target (a node of root's graph); an empty UOp where root does not
/// depend on it through differentiable ops. Under a GraphScope. GradientError for an op without a rule.
UOps compute_gradient(UOp root, UOp seed, std::span<const UOp> targets);
/// Gradients of the sum over several roots, each with its seed.
UOps compute_gradient(std::span<const UOp> roots, std::span<const UOp> seeds, std::span<const UOp> targets);
/// Nodes of the graphs that gradients may pass, sources first: a write that has run is a leaf, and what it was made
/// from lies behind it.
UOps differentiable_order(std::span<const UOp> roots);
/// Calls the gradient function of a call: one gradient per argument, of its type, empty where there is none.
UOps call_gradients(const UOps& gradients, UOp call);

}  // namespace tg
