/// \file What decides which way a function goes: values that it reads on the host to choose a branch or a size; for the
/// files of the JIT.
///
/// The run before a capture reads them and notes which arguments they depend on. The capture takes what that run read,
/// and serves calls whose arguments have the same contents; others are captured by themselves.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg {

struct JitCore::Decisions {
  static constexpr int64_t kMostBytes = 4096;  ///< of an argument or other storage that decides
  /// What was read: a value of this type and number of axes.
  struct Read {
    Decision value;
    DType dtype;
    size_t axes;
  };
  struct Argument {
    size_t index;
    std::vector<std::byte> contents;
  };
  /// What storage that is no argument was.
  struct Outside {
    bool shown;  ///< by a tensor: when none shows it any more, the function reads another one in its place
    std::vector<std::byte> contents;
  };
  std::vector<Argument> arguments;
  std::vector<tensor_detail::TrackedMemory> memory;  ///< that is no argument
  std::vector<Outside> outside;                      ///< of each of `memory`
  tensor_detail::BoundValues variables;              ///< bound ones of the arguments
  std::vector<Read> values;                          ///< in the order of the reads
  std::string problem;                               ///< what cannot be compared from call to call; empty: nothing
  std::string call;                                  ///< the run's constants, flags and kinds of arguments, as text

  bool empty() const { return values.empty(); }
  /// Returns whether a call with these arguments would decide alike. Computes pending writes to `memory`.
  bool hold(const JitInputs& in);
  /// Returns the constants, flags and kinds of the arguments of a call: where they differ other values may be read.
  static std::string describe(const JitInputs& in);
};

/// While it lives, what this thread decides belongs to a run of a function: to be noted, or to be taken from `earlier`.
class JitCore::DecisionScope {
 public:
  /// Of a run that reads: `noted` gets what it decides.
  DecisionScope(const JitInputs& in, Decisions& noted);
  /// Of a capture: `earlier` has what the run before has read.
  explicit DecisionScope(const Decisions& earlier) : earlier_(&earlier), outer_(std::exchange(t_inner, this)) {}
  ~DecisionScope() { t_inner = outer_; }
  DecisionScope(const DecisionScope&) = delete;

  static DecisionScope* innermost() { return t_inner; }
  /// Returns what `read` gives, or in a capture gave.
  Decision decide(const Tensor& t, const std::function<Decision()>& read);
  /// JitError for a capture that took fewer values than were noted.
  void check_all_taken() const;

 private:
  Decision take(const Tensor& t);
  void note(const Tensor& t);
  std::optional<size_t> argument_of(UOp node) const;
  void note_argument(size_t index);
  void note_variable(UOp bound);
  void note_memory(const BufferRef& memory, bool made_here);

  static thread_local DecisionScope* t_inner;
  const JitInputs* in_ = nullptr;
  Decisions* noted_ = nullptr;
  const Decisions* earlier_ = nullptr;
  DecisionScope* outer_;
  size_t next_ = 0;
  int64_t first_new_ = 0;  ///< number of the first storage that the run makes
  /// Storage that needs no note any more. It is kept, so that no other storage gets its address.
  std::unordered_map<const Buffer*, BufferRef> known_;
};

}  // namespace tg
