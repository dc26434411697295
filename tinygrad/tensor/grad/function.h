/// \file Calls in tensor graphs: traced functions, gradients of the user's own, kernels of the user's own,
/// recomputation in place of storage.
#pragma once
#include <concepts>
#include <functional>
#include <string>
#include <utility>

#include "tinygrad/tensor/tensor.h"

namespace tg {

/// Gradients of a call's arguments (an empty UOp: none) from those of its results: of a FUNCTION one per value, of a
/// CALL one per argument; empty where nothing flows. `call` is the node: its sources from 1 on are the arguments.
using NodeGradient = std::function<UOps(const UOps& gradients, UOp call)>;
/// The same on tensors: one gradient per result (zeros where nothing flows), the arguments, the results. Undefined
/// tensors: no gradient.
using TensorGradient = std::function<Tensors(const Tensors& gradients, const Tensors& inputs, const Tensors& outputs)>;
using TensorFunction = std::function<Tensors(const Tensors& inputs)>;
/// Gets one UOp per buffer, of its shape and type, and returns the SINK of its effects. See docs/custom.md.
using KernelFunction = std::function<UOp(const UOps& buffers)>;

struct FunctionOptions {
  std::string name = "function";
  bool precompile = false;  ///< arguments and results are stored: the body's kernels do not fuse with what is around
  bool precompile_backward = false;  ///< the same for the gradient
  bool allow_implicit = true;  ///< false: a tensor the body uses without getting it as an argument is a ValueError
};

// ---- nodes; under a GraphScope ----

/// Wraps a gradient function, so that a node can refer to it.
std::shared_ptr<const CallGradient> make_gradient(NodeGradient f);
/// FUNCTION(TUPLE(values), args...): the values with each argument replaced by a PARAM, and further arguments for the
/// storage they use besides. ValueError for such storage unless allow_implicit. get_tuple: value number i of the call;
/// IndexError where it has none.
UOp make_function(const UOps& values, const UOps& args, CallInfo info, bool allow_implicit = true);
UOp get_tuple(UOp call, size_t i);
/// The graph with every FUNCTION replaced by its body. `keep_gradients`: those with a gradient of their own stay.
UOp inline_functions(UOp root, bool keep_gradients = false);

// ---- functions ----

/// f(inputs), traced into one node. Realizing computes the body, differentiating differentiates it, or asks `gradient`
/// if there is one. Shapes and types are those that f gives. ValueError for a tensor that f uses without getting it
/// where options do not allow that, GradientError where `gradient` gives gradients of another number or shape,
/// IndexError for a result that f has not.
Tensors call_function(const TensorFunction& f, const Tensors& inputs, const FunctionOptions& options = {},
                      const TensorGradient& gradient = {});

/// Tensor::call with a gradient of its own: shape and type of the body; ShapeError and IndexError as there.
Tensor call_body(const Tensors& args, const Tensor& body, std::shared_ptr<const CallGradient> gradient = {});

/// f(inputs), whose intermediates are computed again for the gradient instead of being stored until then. Shapes and
/// types are those that f gives; ValueError and IndexError as call_function.
Tensors checkpoint(const TensorFunction& f, const Tensors& inputs);

/// A function of tensors whose gradient is `backward`:
///
///     auto straight = custom_gradient([](const Tensor& x) { return x.round(); }, [](const Tensor& g, const Tensor&) {
///     return g; });
///
/// `forward(x...)` gives a Tensor; `backward(g, x...)` gets the gradient of the result and gives those of x...: a
/// Tensor for one argument, Tensors for several.
template <class Forward, class Backward> class CustomGradient {
 public:
  /// Shape and type of the result are those that `forward` gives.
  CustomGradient(Forward f, Backward b) : forward_(std::move(f)), backward_(std::move(b)) {}
  template <std::convertible_to<Tensor>... X> Tensor operator()(const X&... x) const {
    using I = std::index_sequence_for<X...>;
    auto f = [this](const Tensors& in) { return Tensors{forward(in, I())}; };
    auto b = [backward = backward_](const Tensors& g, const Tensors& in, const Tensors&) {
      return gradients(backward, g[0], in, I());
    };
    return call_function(f, Tensors{Tensor(x)...}, {.name = "custom_gradient"}, b)[0];
  }

 private:
  template <size_t... I> Tensor forward(const Tensors& in, std::index_sequence<I...>) const {
    return forward_(in[I]...);
  }
  template <size_t... I>
  static Tensors gradients(const Backward& f, const Tensor& g, const Tensors& in, std::index_sequence<I...>) {
    if constexpr (sizeof...(I) == 1) return Tensors{f(g, in[I]...)};
    else return f(g, in[I]...);
  }
  Forward forward_;
  Backward backward_;
};
/// Makes a function of tensors from its forward pass and its gradient, f(gradient of the result, inputs...).
template <class Forward, class Backward>
CustomGradient<Forward, Backward> custom_gradient(Forward forward, Backward backward) {
  return {std::move(forward), std::move(backward)};
}

// ---- kernels ----

/// The tensors once a kernel has run on their storage: those it writes; the others as they are. Those that are no
/// storage are stored first; what the kernel writes is seen by every tensor that shares the storage, as with assign.
/// All lie on one device (DeviceError). ValueError for no buffers and for a kernel that writes nothing, IndexError for
/// a buffer it was not given. `gradient` gets the gradients of what the kernel wrote, by argument.
Tensors custom_kernel(const Tensors& buffers, const KernelFunction& kernel, const NodeGradient& gradient = {});
/// The same in two steps, for callers that write the kernel outside of the graph's lock: what the function gets, and
/// what it gave. Shapes, types and errors as custom_kernel.
struct PreparedKernel {
  std::vector<UOpRef> buffers;      ///< the kernel's parameters
  std::vector<UOpRef> arguments{};  ///< the storage they stand for
};
/// The two steps: what the function gets, and the tensors, of the buffers' shapes and types, once the kernel has run.
/// ValueError for no buffers, DeviceError for several devices, IndexError for a buffer that was not given.
PreparedKernel prepare_kernel(const Tensors& buffers);
Tensors apply_kernel(const PreparedKernel& prepared, UOp sink, const NodeGradient& gradient = {});

}  // namespace tg
