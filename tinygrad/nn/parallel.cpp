/// \file Models on several processes.
#include "tinygrad/nn/parallel.h"

#include <algorithm>
#include <span>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/error.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/collectives.h"

namespace tg::nn {
namespace {
using Spec = std::vector<std::string>;

/// Whether a name fits a pattern in which * is any text.
bool fits(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  pattern.remove_prefix(star + 1);
  for (size_t at = star; at <= name.size(); at++)
    if (fits(pattern, name.substr(at))) return true;
  return false;
}

bool trained(const Tensor& t) { return t.is_floating_point() && t.requires_grad() != false; }

/// Returns another handle of the value.
Tensor same_value(const Tensor& t) {
  tensor_detail::OpScope s;
  return s(t.uop());
}
}  // namespace

namespace {
/// Layers of attention by the names they usually have.
constexpr const char* kQueries[] = {"query", "q", "q_proj", "wq", "attn_q"};
constexpr const char* kKeysAndValues[] = {"key", "value", "k", "v", "k_proj", "v_proj", "wk", "wv", "attn_k", "attn_v"};
constexpr const char* kJoined[] = {"c_attn", "qkv", "qkv_proj", "Wqkv", "attn_qkv"};

/// Whether a tensor of the state is one of these layers'.
bool is_of(std::span<const char* const> layers, const std::string& name) {
  const size_t end = name.rfind('.');
  if (end == std::string::npos) return false;
  const size_t dot = name.rfind('.', end - 1), begin = dot == std::string::npos || end == 0 ? 0 : dot + 1;
  return contains(layers, std::string_view(name).substr(begin, end - begin));
}
bool is_in_proj(const std::string& name) { return name.ends_with("in_proj_weight") || name.ends_with("in_proj_bias"); }
}  // namespace

const std::vector<DivisionRule>& default_divisions() {
  static const auto* rules = [] {
    auto* out = new std::vector<DivisionRule>;
    const auto add = [out](std::span<const char* const> layers, Division d) {
      for (const char* layer : layers)
        for (const char* tensor : {".weight", ".bias"}) {
          out->emplace_back(std::string("*.") + layer + tensor, d);
          out->emplace_back(std::string(layer) + tensor, d);
        }
    };
    static constexpr const char* kHidden[] = {"c_fc", "fc1",      "up_proj", "gate_proj", "w1",
                                              "w3",   "ffn_gate", "ffn_up",  "linear1",   "lm_head"};
    static constexpr const char* kBehind[] = {"c_proj",    "fc2", "out",         "out_proj", "o_proj", "wo",
                                              "down_proj", "w2",  "attn_output", "ffn_down", "linear2"};
    static constexpr const char* kGated[] = {"gate_up_proj", "gate_up", "w13"};
    add(kQueries, Division::kColumn);
    add(kKeysAndValues, Division::kColumn);
    add(kHidden, Division::kColumn);
    add(kBehind, Division::kRow);
    add(kJoined, Division::kThirds);
    add(kGated, Division::kHalves);
    for (const char* tensor : {"in_proj_weight", "in_proj_bias", "*.in_proj_weight", "*.in_proj_bias"})
      out->emplace_back(tensor, Division::kThirds);  // of nn::MultiheadAttention
    return out;
  }();
  return *rules;
}

ParallelState::ParallelState(const StateDict& state, const Mesh& mesh, const ParallelPlan& plan)
    : mesh_(mesh), plan_(plan) {
  TG_CHECK(ValueError, plan.zero >= 0 && plan.zero <= 3, "[parallelize] got zero = ", plan.zero, ", expected 0 to 3");
  TG_CHECK(ValueError,
           std::any_of(mesh.axes().begin(), mesh.axes().end(),
                       [&](const MeshAxis& a) { return a.name == plan.data || a.name == plan.tensor; }),
           "[parallelize] got a mesh without the axes '", plan.data, "' and '", plan.tensor, "' of the plan");
  std::vector<bool> used(plan.divisions.size());
  const bool by_rule = !plan.divisions.empty();
  for (const auto& [name, t] : state) {
    Division d = division_of(name, used);
    if (d == Division::kThirds && !by_rule && !is_equal_thirds(state, name)) d = Division::kWhole;
    check_heads(name, d);
    if (!weight_of(t)) weights_.push_back(placed(name, t, d, by_rule));  // one that has two names has the first
  }
  for (size_t i = 0; i < used.size(); i++)
    TG_CHECK(ValueError, used[i], "[parallelize] got the pattern '", plan.divisions[i].first,
             "', which fits no name of the state");
  // All at once, when nothing can go wrong any more.
  Tensors all;
  for (const Weight& w : weights_) {
    w.tensor.shard_(mesh_, w.kept);
    if (plan_.sync) take_from_first(w);
    w.tensor.replace(w.tensor.contiguous());
    all.push_back(w.tensor);
  }
  if (!all.empty()) realize(all);
}

/// Replaces a weight by that of the first process, among those that have the same part of it: seeds may differ, or one
/// process alone have loaded it.
void ParallelState::take_from_first(const Weight& w) const {
  Tensor part = w.tensor.to_local();
  for (const std::string& axis : {plan_.data, plan_.tensor}) {
    const bool divides = std::any_of(w.kept.begin(), w.kept.end(), [&](const std::string& kept) {
      return kept == axis || kept.starts_with(axis + ':');
    });
    if (!divides && size(axis) > 1) part = distributed::broadcast(part, mesh_, axis, 0);
  }
  w.tensor.replace(Tensor::from_local(part, mesh_, w.kept));
}

Division ParallelState::division_of(const std::string& name, std::vector<bool>& used) const {
  const auto& rules = plan_.divisions.empty() ? default_divisions() : plan_.divisions;
  Division out = Division::kWhole;
  bool found = false;
  for (size_t i = 0; i < rules.size(); i++) {
    if (!fits(rules[i].first, name)) continue;
    if (!found) out = rules[i].second;
    found = true;
    if (i < used.size()) used[i] = true;
  }
  return out;
}

int64_t ParallelState::size(const std::string& axis) const {
  for (const MeshAxis& a : mesh_.axes())
    if (a.name == axis) return a.size;
  return 1;
}

/// Checks that processes get whole heads of a projection that is divided.
void ParallelState::check_heads(const std::string& name, Division division) const {
  if (division == Division::kWhole || division == Division::kRow) return;
  const bool keys = is_of(kKeysAndValues, name);
  if (!keys && !is_of(kQueries, name) && !is_of(kJoined, name) && !is_in_proj(name)) return;
  const int64_t heads = keys && plan_.kv_heads != 0 ? plan_.kv_heads : plan_.heads, n = size(plan_.tensor);
  TG_CHECK(ShapeError, heads % n == 0, "[parallelize] got ", heads,
           keys ? " heads of keys and values in " : " heads in ", name, " for ", n, " processes along '", plan_.tensor,
           "', expected a multiple");
}

/// Whether a matrix has as many queries as keys and values: it is square but for the three of them. A bias is as its
/// matrix is.
bool ParallelState::is_equal_thirds(const StateDict& state, const std::string& name) const {
  std::string weight = name;
  if (name.ends_with("bias")) weight.replace(name.size() - 4, 4, "weight");
  return std::any_of(state.begin(), state.end(), [&](const auto& entry) {
    const auto& [other, t] = entry;
    return other == weight && t.ndim() == 2 && t.shape(0) == 3 * t.shape(1) &&
           (plan_.kv_heads == 0 || plan_.kv_heads == plan_.heads);
  });
}

ParallelState::Weight ParallelState::placed(const std::string& name, const Tensor& t, Division division,
                                            bool by_rule) const {
  const Shape shape = t.shape();
  Weight w{name, t, Spec(shape.size()), {}, {}};
  const size_t axis = division == Division::kRow ? 1 : 0;
  const int64_t blocks = division == Division::kThirds ? 3 : division == Division::kHalves ? 2 : 1;
  if (const int64_t n = size(plan_.tensor); n > 1 && division != Division::kWhole && axis < shape.size()) {
    const bool multiple = shape[axis].value() % (blocks * n) == 0;
    TG_CHECK(ShapeError, multiple || !by_rule, "[parallelize] got size ", shape[axis], " along axis ", axis, " of ",
             name, " for ", n, " processes along '", plan_.tensor, "'",
             blocks > 1 ? str(" in ", blocks, " blocks") : "", ", expected a multiple");
    if (multiple) w.kept[axis] = blocks > 1 ? str(plan_.tensor, ":", blocks) : plan_.tensor;
  }
  w.used = w.state = w.kept;
  const int64_t n = size(plan_.data);
  if (n == 1 || plan_.zero == 0 || !trained(t) || shape.numel() < plan_.whole_below) return w;
  for (size_t i = 0; i < shape.size(); i++) {
    if (!w.kept[i].empty() || shape[i].value() % n != 0) continue;
    w.state[i] = plan_.data;
    break;
  }
  if (plan_.zero == 3) w.kept = w.state;
  return w;
}

const std::vector<std::string>& ParallelState::spec(const std::string& name) const {
  for (const Weight& w : weights_)
    if (w.name == name) return w.kept;
  throw IndexError(str("[parallelize] got the name '", name, "', which the state does not have"));
}

Tensor ParallelState::batch(const Tensor& whole) const {
  Spec spec(static_cast<size_t>(whole.ndim()));
  if (!spec.empty() && size(plan_.data) > 1) spec[0] = plan_.data;
  if (spec.size() > 1 && plan_.sequence && size(plan_.tensor) > 1) spec[1] = plan_.tensor;
  return whole.shard(mesh_, spec);
}
Tensor ParallelState::batch_of(const Tensor& rows) const {
  Spec spec(static_cast<size_t>(rows.ndim()));
  if (!spec.empty() && size(plan_.data) > 1) spec[0] = plan_.data;
  return batch(Tensor::from_local(rows, mesh_, spec));
}

const ParallelState::Weight* ParallelState::weight_of(const Tensor& t) const {
  for (const Weight& w : weights_)
    if (w.tensor.is_same(t)) return &w;
  return nullptr;
}

Tensor ParallelState::backward(const Tensor& loss) const {
  loss.backward();
  if (plan_.zero == 2)
    for (const Weight& w : weights_)
      if (const Tensor g = w.tensor.grad(); g.defined() && w.state != w.kept)
        w.tensor.set_grad(g.shard(mesh_, w.state));
  return loss;
}

void ParallelState::place_state(const Optimizer& optimizer) const {
  if (plan_.zero == 0) return;
  TG_CHECK(ValueError, !optimizer.fused(),
           "[parallelize] got a fused optimizer, whose state is one tensor, with zero = ", plan_.zero,
           ", expected state for each weight");
  for (size_t i = 0; i < optimizer.params().size(); i++) {
    Tensors state;
    for (const Optimizer::StateSlot& slot : optimizer.state_slots())
      if (slot.per_parameter) state.push_back(optimizer.state()[slot.first + i]);
    place_state_of(optimizer.params()[i], state);
  }
}
void ParallelState::place_state_of(const Tensor& weight, const Tensors& state) const {
  const Weight* w = weight_of(weight);
  if (!w || w->state == w->kept) return;
  Tensors changed;
  for (const Tensor& s : state) {
    if (s.shape() != weight.shape()) continue;
    s.shard_(mesh_, w->state);
    s.replace(s.contiguous());
    changed.push_back(s);
  }
  if (!changed.empty()) realize(changed);
}

ParallelState::Use::Use(const ParallelState& s) {
  for (const Weight& w : s.weights_) {
    const bool cast = s.plan_.compute && trained(w.tensor) && w.tensor.dtype() != *s.plan_.compute;
    if (w.kept == w.used && !cast) continue;
    const Tensor t = cast ? w.tensor.cast(*s.plan_.compute) : w.tensor;
    changed_.emplace_back(w.tensor, t.shard(s.mesh_, w.used));
  }
  // All at once, when nothing can go wrong any more.
  for (auto& [handle, other] : changed_) {
    const Tensor before = same_value(handle);
    handle.replace(other);
    other = before;
  }
}
ParallelState::Use::~Use() {
  for (const auto& [handle, before] : changed_) handle.replace(before);
}

}  // namespace tg::nn
