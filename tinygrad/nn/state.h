/// \file Parameters by name. A struct lists its tensors and modules once, `TG_STATE(conv1, bn1, fc)`, and
/// get_parameters, get_state_dict and load_state_dict find them: tensors as "conv1.weight", elements of vectors,
/// arrays, pairs and tuples as "blocks.0.weight".
#pragma once
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

/// Names the members of a struct that hold state, in listing order. Tensors are shared handles, so a const module is
/// enough.
#define TG_STATE(...) \
  void visit_state(::tg::nn::StateVisitor& visitor) const { visitor.members(#__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); }

namespace tg::nn {

/// Names and tensors in order of declaration. The tensors are the module's own handles.
struct StateDict : std::vector<std::pair<std::string, Tensor>> {
  using std::vector<std::pair<std::string, Tensor>>::vector;
  bool contains(std::string_view name) const;
  /// Returns a tensor, of whatever shape and type it is. Throws IndexError when there is none of that name.
  const Tensor& at(std::string_view name) const;
};

/// Walks the members of modules and collects every defined tensor under its full name.
class StateVisitor {
 public:
  StateVisitor(StateDict& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

  /// Visits members with their names in one string, as the preprocessor gives them: "a, b".
  template <class... M> void members([[maybe_unused]] std::string_view names, const M&... m) {
    (member(next_name(names), m), ...);
  }

  /// Visits a member: a tensor under `name`, a layer or a list of them under `name` and a dot.
  template <class M> void member(const std::string& name, const M& m) {
    if constexpr (std::is_same_v<M, Tensor>) {
      if (m.defined()) out_.emplace_back(prefix_ + name, m);
    } else if constexpr (requires {
                           static_cast<bool>(m);
                           *m;
                         }) {  // optional, smart pointers
      if (m) member(name, *m);
    } else {
      const size_t outside = prefix_.size();
      prefix_ += name + ".";
      contents(m);
      prefix_.resize(outside);
    }
  }

  /// Visits the contents of a module or container.
  template <class M> void contents(const M& m) {
    int i = 0;
    if constexpr (requires { m.visit_state(*this); }) m.visit_state(*this);
    else if constexpr (requires { typename M::mapped_type; })
      for (const auto& [key, e] : m) member(str(key), e);
    else if constexpr (requires {
                         m.begin();
                         m.end();
                       })
      for (const auto& e : m) member(std::to_string(i++), e);
    else if constexpr (requires { std::tuple_size<M>::value; })
      std::apply([&](const auto&... e) { (member(std::to_string(i++), e), ...); }, m);
    else
      static_assert(
          requires { m.visit_state(*this); },
          "TG_STATE lists a member that is no Tensor, no struct with TG_STATE and no container of these");
  }

 private:
  static std::string next_name(std::string_view& names);

  StateDict& out_;
  std::string prefix_;
};

/// Returns the state of `model`, a module or a container of modules and tensors; `prefix` is prepended to every name.
template <class M> StateDict get_state_dict(const M& model, std::string prefix = "") {
  StateDict out;
  StateVisitor(out, std::move(prefix)).contents(model);
  return out;
}
/// Returns all tensors of the state, with their shapes and types, running statistics included; optimizers leave those
/// unchanged (they have requires_grad(false)) and realize them.
template <class M> Tensors get_parameters(const M& model) {
  Tensors out;
  for (auto& [name, t] : get_state_dict(model)) out.push_back(t);
  return out;
}

struct LoadOptions {
  bool strict = true;  ///< a name on one side only is an error
  bool realize = true;
};
struct LoadReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     ///< the model has them, the dictionary does not
  std::vector<std::string> unexpected;  ///< the dictionary has them, the model does not
};
/// Returns for each tensor whether load_state_dict writes into its storage, where captured functions see the values.
/// Others get storage of their own: those that have none yet or share it with another tensor, and those on several
/// devices.
std::vector<bool> written_in_place(const Tensors& tensors);
/// Returns whether a value is a float that kernels compute from fewer bytes, such as a weight in a quantized file:
/// load_state_dict leaves it so.
bool is_packed(const Tensor& value);
/// Gives every tensor of `target` the value of the same name in `source`, on the target's device and in its own dtype.
/// Packed values stay packed: the target then computes them where they are used. Nothing is changed
/// when it throws: ValueError that lists missing and unexpected names (strict), ShapeError for a shape that differs
/// ((1,) and () are interchangeable).
LoadReport load_state_dict(const StateDict& target, const StateDict& source, const LoadOptions& o = {});
template <class M> LoadReport load_state_dict(const M& model, const StateDict& source, const LoadOptions& o = {}) {
  return load_state_dict(get_state_dict(model), source, o);
}

}  // namespace tg::nn
