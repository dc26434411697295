/// \file Several captures of one function: calls that differ in what is captured as it is (constants, flags, which
/// gradients are there) replay a record of their own. A constant whose other values gave the same record three times
/// does not matter.
#include <algorithm>

#include "tinygrad/base/binary.h"
#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_state.h"

namespace tg {
using namespace tensor_detail;

namespace {
using Constants = std::vector<std::pair<std::string, std::string>>;
/// Records with other constants that have to agree before the constants in which they differ are taken not to matter.
constexpr size_t kAgreeing = 2;

/// Returns the names of constants whose values differ; of those in the shorter list.
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
      if (given[i] != known[i] && (given[i].first != known[i].first || !contains(ignored, given[i].first)))
        return false;
    return true;
  };
  return like(constants) || std::any_of(alike.begin(), alike.end(), like);
}

/// Whether the current capture is one of calls like this. Arguments of another kind fit: replaying them is the error
/// that says so.
bool JitCore::fits(const JitInputs& in) const {
  State& s = *state_;
  if (!s.accepts(in.constants)) return false;
  for (const auto& [flag, then] : s.flags)
    if (flag_text(flag) != then) return false;
  for (const EscapingGradient& l : s.gradients)
    if (!l.fits()) return false;
  if (std::ranges::any_of(s.left, [](const auto& t) { return t.expired(); })) return false;
  for (size_t i = 0; i < s.inputs.size() && i < in.tensors.size(); i++) {
    if (!in.tensors[i].defined()) continue;
    const State::InputState& then = s.inputs[i];
    const bool has = static_cast<bool>(in.tensors[i].impl()->grad);
    if (then.gradient == InputGradient::kGiven && !then.had_gradient && has) return false;
    if (then.gradient == InputGradient::kAdded && then.tensor.lock().get() != in.tensors[i].impl()) return false;
  }
  // Decisions name arguments as a run sees them: those on several devices by shard.
  return s.decisions.empty() || (!sharded() && s.decisions.hold(in));
}

/// Exchanges the current capture with another.
void JitCore::swap_current(Recorded& other) {
  std::swap(replay_, other.replay);
  std::swap(state_, other.state);
  std::swap(multi_, other.multi);
  std::swap(capture_, other.number);
}

/// Makes a capture that fits this call the current one, or none, so that the call is captured. False when there are
/// enough already.
bool JitCore::choose(const JitInputs& in) {
  if (loaded_ || (replay_ && fits(in))) return true;
  for (size_t i = 0; i < others_.size(); i++) {
    swap_current(others_[i]);
    if (fits(in)) {
      if (!others_[i].replay) {  // there was no current one
        others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(i));
        count_ = 2;
        dry_run_.reset();
      }
      return true;
    }
    swap_current(others_[i]);
  }
  if (!replay_) return true;
  if (others_.size() + 1 >= kMostCaptures) return false;
  others_.push_back({std::move(replay_), std::move(state_), multi_, capture_});
  count_ = 1;
  dry_run_.reset();
  return true;
}

/// What two captures with equal records have in common: all but their constants.
struct JitCore::RecordBytes {
  std::vector<uint8_t> bytes;  ///< empty: it cannot be written, and so not be compared
  std::vector<StoredMemory> memory;
};

/// Writes the current capture without its constants.
JitCore::RecordBytes JitCore::record_bytes() {
  RecordBytes out;
  ByteWriter w;
  Constants hidden = std::exchange(state_->constants, {});
  try {
    write(w, out.memory, {});
    out.bytes = std::move(w.bytes);
  } catch (const Error&) { out.bytes.clear(); }
  state_->constants = std::move(hidden);
  return out;
}

/// Whether two captures do the same besides their launches: with the same memory, or memory each made for itself, and
/// with gradients and flags.
bool JitCore::State::same_effects(const std::vector<StoredMemory>& memory, const State& other,
                                  const std::vector<StoredMemory>& there) const {
  const auto made = [](const State& s, const Buffer* b) {
    for (size_t t = 0; t < s.tracked.size(); t++)
      if (&s.tracked[t].memory->base() == b) return static_cast<bool>(s.made_external[t]);
    return false;
  };
  if (memory.size() != there.size() || !same_gradients(gradients, other.gradients) || flags != other.flags)
    return false;
  for (size_t i = 0; i < memory.size(); i++)
    if (memory[i].buffer != there[i].buffer &&
        !(made(*this, memory[i].buffer.get()) && made(other, there[i].buffer.get())))
      return false;
  return std::equal(inputs.begin(), inputs.end(), other.inputs.begin(), other.inputs.end(),
                    [](const InputState& a, const InputState& b) {
                      return a.gradient == b.gradient && a.had_gradient == b.had_gradient;
                    });
}

/// Lets the capture serve calls with these constants too; one whose values differed often enough does not matter.
void JitCore::State::add_constants(const Constants& more) {
  alike.push_back(more);
  for (const std::string& name : differing(constants, more)) {
    const auto differs = [&](const Constants& c) { return std::ranges::count(differing(constants, c), name) > 0; };
    if (std::ranges::count_if(alike, differs) >= static_cast<std::ptrdiff_t>(kAgreeing)) ignored.push_back(name);
  }
}

/// Looks after a capture whether one before has the same record. Then that one stays, and serves these constants too.
bool JitCore::merge_equal() {
  if (others_.empty() || !replay_ || sharded() || !state_->decisions.empty()) return false;
  const RecordBytes current = record_bytes();
  if (current.bytes.empty()) return false;
  for (size_t k = 0; k < others_.size(); k++) {
    swap_current(others_[k]);
    const RecordBytes other = state_->decisions.empty() ? record_bytes() : RecordBytes();
    swap_current(others_[k]);
    if (other.bytes != current.bytes || !state_->same_effects(current.memory, *others_[k].state, other.memory))
      continue;
    others_[k].state->add_constants(state_->constants);
    const size_t number = capture_;
    swap_current(others_[k]);
    capture_ = number;
    others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(k));
    return true;
  }
  return false;
}

}  // namespace tg
