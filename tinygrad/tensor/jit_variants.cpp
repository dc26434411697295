/// \file Several captures of one function: calls that differ in what is captured as it is (constants, flags, which
/// gradients are there) replay a record of their own. A constant whose other values gave the same record three times
/// does not matter.
#include <algorithm>

#include "tinygrad/base/binary.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit_state.h"

namespace tg {
using namespace tensor_detail;

namespace {
using Constants = std::vector<std::pair<std::string, std::string>>;
/// Records with other constants that have to agree before the constants in which they differ are taken not to matter.
constexpr size_t kAgreeing = 2;

/// Names of constants whose values differ; those of the shorter list.
std::vector<std::string> differing(const Constants& a, const Constants& b) {
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
    if (a[i] != b[i]) out.push_back(a[i].first);
  return out;
}
bool same_gradients(const std::vector<EscapingGradient>& a, const std::vector<EscapingGradient>& b) {
  const auto same = [](const EscapingGradient& x, const EscapingGradient& y) {
    return x.owner.lock() == y.owner.lock() && x.absent == y.absent && x.grown == y.grown &&
           (!x.grown || x.grad == y.grad);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}
}  // namespace

bool JitCore::State::accepts(const Constants& given) const {
  const auto like = [&](const Constants& known) {
    if (known.size() < given.size()) return false;
    for (size_t i = 0; i < given.size(); i++)
      if (given[i] != known[i] && (given[i].first != known[i].first ||
                                   std::find(ignored.begin(), ignored.end(), given[i].first) == ignored.end()))
        return false;
    return true;
  };
  return like(constants) || std::any_of(alike.begin(), alike.end(), like);
}

/// Whether the current capture is one of calls like this. Arguments of another kind fit: replaying them is the error
/// that says so.
bool JitCore::fits(const JitInputs& in) const {
  const State& s = *state_;
  if (!s.accepts(in.constants)) return false;
  for (const auto& [flag, then] : s.flags)
    if (flag_text(flag) != then) return false;
  for (const EscapingGradient& l : s.gradients)
    if (!l.fits()) return false;
  for (size_t i = 0; i < s.inputs.size() && i < in.tensors.size(); i++) {
    if (!in.tensors[i].defined()) continue;
    const State::InputState& then = s.inputs[i];
    const bool has = static_cast<bool>(in.tensors[i].impl()->grad);
    if (then.gradient == InputGradient::kGiven && !then.had_gradient && has) return false;
    if (then.gradient == InputGradient::kAdded && then.tensor.lock().get() != in.tensors[i].impl()) return false;
  }
  return true;
}

/// Makes a capture that fits this call the current one, or none, so that the call is captured. False when there are
/// enough already.
bool JitCore::choose(const JitInputs& in) {
  if (!replay_ || loaded_ || fits(in)) return true;
  const auto swap = [&](Recorded& o) {
    std::swap(replay_, o.replay);
    std::swap(state_, o.state);
    std::swap(multi_, o.multi);
    std::swap(capture_, o.number);
  };
  for (Recorded& o : others_) {
    swap(o);
    if (fits(in)) return true;
    swap(o);
  }
  if (others_.size() + 1 >= kMostCaptures) return false;
  others_.push_back({std::move(replay_), std::move(state_), multi_, capture_});
  count_ = 1;
  again_ = 0;
  dry_run_.reset();
  return true;
}

/// After a capture: whether one before has the same record. Then that one stays, and serves these constants too.
bool JitCore::merge_equal() {
  if (others_.empty() || !replay_ || sharded()) return false;
  const auto bytes_of = [&](std::vector<StoredMemory>& memory) {
    ByteWriter w;
    Constants hidden = std::move(state_->constants);
    state_->constants.clear();
    try {
      write(w, memory, {});
    } catch (const Error&) { w.bytes.clear(); }  // what cannot be written cannot be compared
    state_->constants = std::move(hidden);
    return std::move(w.bytes);
  };
  std::vector<StoredMemory> memory;
  const auto bytes = bytes_of(memory);
  const auto alike = [&](const State& other, const std::vector<StoredMemory>& there) {
    if (memory.size() != there.size() || !same_gradients(state_->gradients, other.gradients) ||
        state_->flags != other.flags)
      return false;
    for (size_t i = 0; i < memory.size(); i++) {
      const auto made = [&](const State& s, const BufferRef& b) {
        for (size_t t = 0; t < s.tracked.size(); t++)
          if (&s.tracked[t].memory->base() == b.get()) return static_cast<bool>(s.made_external[t]);
        return false;
      };
      if (memory[i].buffer != there[i].buffer && !(made(*state_, memory[i].buffer) && made(other, there[i].buffer)))
        return false;
    }
    for (size_t i = 0; i < state_->inputs.size(); i++)
      if (state_->inputs[i].gradient != other.inputs[i].gradient ||
          state_->inputs[i].had_gradient != other.inputs[i].had_gradient)
        return false;
    return true;
  };
  if (bytes.empty()) return false;
  for (size_t k = 0; k < others_.size(); k++) {
    Recorded current{std::move(replay_), std::move(state_), multi_, capture_};
    Recorded other = std::move(others_[k]);
    replay_ = std::move(other.replay);
    state_ = std::move(other.state);
    std::vector<StoredMemory> there;
    const bool same_bytes = bytes_of(there) == bytes;
    other.replay = std::move(replay_);
    other.state = std::move(state_);
    replay_ = std::move(current.replay);
    state_ = std::move(current.state);
    if (!same_bytes || !alike(*other.state, there)) {
      others_[k] = std::move(other);
      continue;
    }
    State& kept = *other.state;
    const std::vector<std::string> names = differing(kept.constants, state_->constants);
    kept.alike.push_back(state_->constants);
    for (const std::string& name : names) {
      const auto differs = [&](const Constants& c) {
        return std::ranges::count(differing(kept.constants, c), name) > 0;
      };
      if (std::ranges::count_if(kept.alike, differs) >= static_cast<std::ptrdiff_t>(kAgreeing))
        kept.ignored.push_back(name);
    }
    replay_ = std::move(other.replay);
    state_ = std::move(other.state);
    multi_ = std::move(other.multi);
    others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(k));
    return true;
  }
  return false;
}

}  // namespace tg
