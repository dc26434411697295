/// \file Names of members, and loading values into a model.
#include "tinygrad/nn/state.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/uop/facts.h"

namespace tg::nn {
namespace {

constexpr size_t kNamesInMessage = 10;

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kNamesInMessage); i++) out += (i ? ", " : "") + names[i];
  return names.size() > kNamesInMessage ? str(out, ", ... (", names.size(), ")") : out;
}

/// (1,) and () are interchangeable.
bool same_shape(const Shape& a, const Shape& b) {
  const auto is_one = [](const Shape& s) { return s.empty() || (s.size() == 1 && s[0] == 1); };
  return a == b || (is_one(a) && is_one(b));
}

}  // namespace

std::string StateVisitor::next_name(std::string_view& names) {
  const size_t begin = names.find_first_not_of(" "), end = std::min(names.find(',', begin), names.size());
  const std::string_view name = names.substr(begin, end - begin);
  names.remove_prefix(std::min(end + 1, names.size()));
  return std::string(
      name.substr(0, name.find_last_not_of(" _") + 1));  // a private member's underscore is not part of its name
}

bool StateDict::contains(std::string_view name) const {
  return std::any_of(begin(), end(), [&](const auto& e) { return e.first == name; });
}

const Tensor& StateDict::at(std::string_view name) const {
  for (const auto& [n, t] : *this)
    if (n == name) return t;
  throw IndexError(str("[state_dict] got name '", name, "', which is not among the ", size(), " names there"));
}

std::vector<bool> written_in_place(const Tensors& tensors) {
  std::vector<bool> out = tensor_detail::sole_owners(tensors);
  for (size_t i = 0; i < tensors.size(); i++) out[i] = out[i] && tensors[i].devices().size() == 1;
  return out;
}

bool is_packed(const Tensor& value) {
  if (!value.dtype().is_float() || value.devices().size() != 1 || value.is_realized()) return false;
  GraphScope graph;
  int64_t held = 0;
  bool bytes = false;
  for (UOp u : value.uop().toposort()) {
    if (!u.is(Ops::BUFFER)) continue;
    held += shape_of(u).numel() * u.dtype().itemsize();
    bytes |= u.dtype() == dtypes::uint8;
  }
  return bytes && held < value.nbytes();
}

namespace {
/// Tensors of a model and their values, of names that both sides have.
struct Matched {
  LoadReport report;
  Tensors targets, values;
};

/// Compares the names of both, and the shapes of what both have.
Matched match_names(const StateDict& target, const StateDict& source) {
  Matched m;
  std::unordered_map<std::string_view, const Tensor*> values;
  for (const auto& [name, t] : source) values.emplace(name, &t);
  std::unordered_set<std::string_view> used;
  for (const auto& [name, t] : target) {
    const auto at = values.find(name);
    if (at == values.end()) {
      m.report.missing.push_back(name);
      continue;
    }
    TG_CHECK(ShapeError, same_shape(t.shape(), at->second->shape()), "[load_state_dict] ", name, ": got shape ",
             at->second->shape(), ", expected ", t.shape());
    m.targets.push_back(t);
    m.values.push_back(*at->second);
    (used.insert(name).second ? m.report.loaded : m.report.missing).push_back(name);
  }
  for (const auto& [name, t] : source)
    if (!used.contains(name)) m.report.unexpected.push_back(name);
  return m;
}

/// Returns a value where `t` is, without sharing storage. A tensor on several devices stays sharded as it is.
Tensor placed_as(const Tensor& t, const Tensor& value) {
  const bool several = t.devices().size() > 1;
  if (several) return value.devices().size() > 1 ? value.clone() : value.shard_like(t);
  return value.device() != t.device() ? value.to(t.device()) : value.clone();
}

void load_value(const Tensor& t, const Tensor& value, bool in_place) {
  if (in_place && value.devices().size() == 1 && value.dtype() == t.dtype()) {
    t.assign(value.to(t.device()).detach().reshape(t.shape()));
    return;
  }
  t.replace(placed_as(t, value).detach().reshape(t.shape()));
  if (t.requires_grad()) t.is_param_(*t.requires_grad());
}
}  // namespace

LoadReport load_state_dict(const StateDict& target, const StateDict& source, const LoadOptions& o) {
  const auto [report, own, values] = match_names(target, source);
  TG_CHECK(ValueError, !o.strict || (report.missing.empty() && report.unexpected.empty()), "[load_state_dict] ",
           report.missing.empty() ? "" : "missing: " + listed(report.missing),
           report.missing.empty() || report.unexpected.empty() ? "" : "; ",
           report.unexpected.empty() ? "" : "unexpected: " + listed(report.unexpected),
           " (strict = false loads what both have)");
  const std::vector<bool> in_place = written_in_place(own);
  Tensors changed;
  for (size_t i = 0; i < own.size(); i++) {
    const Tensor& t = own[i];
    if (is_packed(values[i]) && t.devices().size() == 1 && values[i].device() == t.device()) {
      t.replace(values[i].detach().reshape(t.shape()));
      if (t.requires_grad()) t.is_param_(*t.requires_grad());
      continue;
    }
    load_value(t, values[i], in_place[i]);
    changed.push_back(t);
  }
  if (o.realize && !changed.empty()) realize(changed);
  return report;
}

}  // namespace tg::nn
