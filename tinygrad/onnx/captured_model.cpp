/// \file CapturedModel: a model whose calls are replays, at any size within a range.
#include "tinygrad/onnx/captured_model.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/error.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/jit/sized_input.h"
#include "tinygrad/tensor/variable.h"

namespace tg::onnx {
namespace {

/// The name of the range of an axis: that of its size, or of its place.
std::string range_name(const ValueInfo& input, size_t axis) {
  const Dimension& d = (*input.type.shape)[axis];
  return d.name.empty() ? str(input.name, ".", axis) : std::string(d.name);
}

/// Calls `use` with each axis of an input whose size the file leaves open.
template <class F> void each_open_axis(const ValueInfo& input, F&& use) {
  if (!input.type.shape) return;
  for (size_t i = 0; i < input.type.shape->size(); i++)
    if (!(*input.type.shape)[i].value) use(i, range_name(input, i));
}

/// Sizes that are variables: the name of each with its range.
using Ranges = std::map<std::string, SizeRange>;

/// Returns the names of the sizes that have a range in common.
std::vector<std::string_view> names_of(std::string_view key) {
  std::vector<std::string_view> out;
  for (size_t end = 0; end != std::string_view::npos; key.remove_prefix(std::min(end + 1, key.size()))) {
    end = key.find('=');
    out.push_back(key.substr(0, end));
  }
  return out;
}

/// Returns the entry for a size.
Ranges::const_iterator find_range(const Ranges& ranges, std::string_view size) {
  return std::ranges::find_if(ranges, [&](const auto& entry) { return contains(names_of(entry.first), size); });
}

using Inputs = std::map<std::string, Tensor>;
using Variables = std::map<std::string, BoundVariable>;

/// The captures of one combination of shapes and types, without the sizes that are variables.
struct Capture {
  std::string key;
  JitCore core{"model"};
  std::vector<std::string> outputs;           ///< names, in the order of the results
  std::map<std::string, SizedInput> storage;  ///< of inputs that have variables
};

}  // namespace

struct CapturedModel::State {
  Model model;
  Ranges ranges;
  std::list<Capture> captures;  ///< the one used last is the first
  std::mutex lock;

  State(Model m, Ranges r) : model(std::move(m)), ranges(std::move(r)) {}

  /// Returns the sizes of this call that are variables. ShapeError for one out of its range.
  Variables variables_of(const Inputs& inputs) const;
  Capture& capture_for(const std::string& key);
  /// Returns an input as the captured function gets it.
  Tensor argument(Capture& c, const std::string& name, const Tensor& x, const Variables& variables) const;
};

namespace {

/// Calls `use` with the range of each axis of an input that is a variable, and its size.
template <class F> void each_variable(const ValueInfo& info, const Tensor& x, const Ranges& ranges, F&& use) {
  if (info.type.shape && info.type.shape->size() != static_cast<size_t>(x.ndim())) return;  // the run says so
  each_open_axis(info, [&](size_t axis, const std::string& name) {
    if (const auto at = find_range(ranges, name); at != ranges.end())
      use(axis, at->first, at->second, x.shape()[axis].value());
  });
}

/// Returns the shapes and types of a call as text, without the sizes that are variables.
std::string key_of(const Model& model, const Ranges& ranges, const Inputs& inputs) {
  std::string out;
  for (const ValueInfo& info : model.proto().graph.inputs) {  // those with a constant in their place too
    const auto at = inputs.find(std::string(info.name));
    if (at == inputs.end()) continue;
    Shape shape = at->second.shape();
    each_variable(info, at->second, ranges,
                  [&](size_t axis, const std::string&, const SizeRange&, int64_t) { shape[axis] = -1; });
    out += str(info.name, " ", at->second.dtype(), shape, at->second.device(), "\n");
  }
  return out;
}

}  // namespace

Variables CapturedModel::State::variables_of(const Inputs& inputs) const {
  Variables out;
  for (const ValueInfo& info : model.inputs()) {
    const auto at = inputs.find(std::string(info.name));
    if (at == inputs.end()) continue;
    each_variable(info, at->second, ranges, [&](size_t axis, const std::string& name, const SizeRange& r, int64_t n) {
      TG_CHECK(ShapeError, n >= r.least && n <= r.most, "[onnx] got shape ", at->second.shape(), " for input ",
               printable(info.name), ", expected a size of axis ", axis, " from ", r.least, " to ", r.most);
      const int64_t seen = out.try_emplace(name, Variable(name, r.least, r.most).bind(n)).first->second.value();
      TG_CHECK(ShapeError, seen == n, "[onnx] got shape ", at->second.shape(), " for input ", printable(info.name),
               ", expected size ", seen, " of axis ", axis, ", as ", printable(name), " is elsewhere");
    });
  }
  return out;
}

Tensor CapturedModel::State::argument(Capture& c, const std::string& name, const Tensor& x,
                                      const Variables& variables) const {
  const auto info = std::ranges::find(model.inputs(), name, &ValueInfo::name);
  Shape sizes = x.shape();
  if (info != model.inputs().end())
    each_variable(*info, x, ranges, [&](size_t axis, const std::string& size, const SizeRange&, int64_t) {
      sizes[axis] = variables.at(size);
    });
  if (!sizes.symbolic()) return stored_argument(x);
  GraphScope scope;
  Shape largest;
  for (const SInt& n : sizes) largest.push_back(n.max());
  return c.storage.try_emplace(name, largest.numel(), x.dtype(), x.device()).first->second.fill(x, sizes);
}

Capture& CapturedModel::State::capture_for(const std::string& key) {
  const auto at = std::ranges::find(captures, key, &Capture::key);
  if (at != captures.end()) {
    captures.splice(captures.begin(), captures, at);
  } else {
    if (captures.size() >= JitCore::kMostCaptures) captures.pop_back();
    captures.emplace_front().key = key;
  }
  return captures.front();
}

CapturedModel::CapturedModel(Model model, Ranges ranges)
    : state_(std::make_unique<State>(std::move(model), std::move(ranges))) {
  for (const auto& [name, r] : state_->ranges) {
    TG_CHECK(ValueError, r.least >= 1 && r.least <= r.most, "[onnx] got sizes of ", printable(name), " from ", r.least,
             " to ", r.most, ", expected at least 1 and in order");
    for (const std::string_view part : names_of(name)) {
      bool found = false;
      for (const ValueInfo& info : state_->model.inputs())
        each_open_axis(info, [&](size_t, const std::string& open) { found |= open == part; });
      TG_CHECK(ValueError, found, "[onnx] got a range of \"", printable(part), "\", which no input has");
    }
  }
}
CapturedModel::CapturedModel(CapturedModel&&) noexcept = default;
CapturedModel& CapturedModel::operator=(CapturedModel&&) noexcept = default;
CapturedModel::~CapturedModel() = default;
const Model& CapturedModel::model() const { return state_->model; }

std::map<std::string, Tensor> CapturedModel::operator()(const Inputs& inputs) {
  if (JitCore::capturing()) return model()(inputs);  // part of what is being captured
  State& s = *state_;
  const std::lock_guard hold(s.lock);
  const Variables variables = s.variables_of(inputs);
  Capture& c = s.capture_for(key_of(s.model, s.ranges, inputs));
  Inputs arguments;
  for (const auto& [name, x] : inputs) {
    const Tensor t = s.argument(c, name, x, variables);
    const bool again =
        std::ranges::any_of(arguments, [&](const auto& other) { return share_storage(other.second, t); });
    arguments.emplace(name, again ? t.clone().realize() : t);
  }
  JitInputs in;
  for (const auto& [name, v] : variables) in.variables.emplace_back(v.uop());
  for (const auto& [name, x] : arguments) {
    in.tensors.push_back(x);
    in.names.push_back(name);
  }
  const Tensors results = c.core.call(in, {[&] {
                                        Tensors out;
                                        const Inputs got = s.model(arguments);
                                        c.outputs.clear();
                                        for (const auto& [name, t] : got) {
                                          c.outputs.push_back(name);
                                          out.push_back(t);
                                        }
                                        return out;
                                      }});
  Inputs out;
  for (size_t i = 0; i < results.size(); i++) {
    const Tensor t = with_values(results[i]);
    const bool shown = std::ranges::any_of(c.storage, [&](const auto& in) { return in.second.is_shown_by(t); });
    out.emplace(c.outputs[i], shown ? t.clone().realize() : t);
  }
  return out;
}

Tensor CapturedModel::operator()(const Tensor& x) { return (*this)(Inputs{{model().sole_input(), x}}).begin()->second; }

}  // namespace tg::onnx
