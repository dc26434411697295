/// \file jit(f): a function that is run twice, recorded the second time, and from then on replayed as a flat list of
/// launches.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"
#include "tinygrad/tensor/variable.h"

namespace tg {

class Buffer;
class ByteReader;
class ByteWriter;
class Replay;

/// Memory whose contents belong to a stored function.
struct StoredMemory {
  std::shared_ptr<Buffer> buffer;
  int64_t bytes = 0;
};

/// What a captured function is called with.
struct JitInputs {
  Tensors tensors;
  std::vector<std::string> names;  ///< of the tensors, for errors
  std::vector<UOpRef> variables;   ///< bound ones
  /// Everything else, as text: captured as it is, so a call with another text is captured by itself.
  std::vector<std::pair<std::string, std::string>> constants;
  Tensors wholes;  ///< of which `tensors` has the shards
};

/// The machine behind `jit`, for any language's functions. Not copyable; calls exclude each other.
class JitCore {
 public:
  explicit JitCore(std::string name = "function", bool prune = false);
  ~JitCore();
  JitCore(const JitCore&) = delete;

  struct Body {
    std::function<Tensors()> run;  ///< runs the function and returns the tensors of its result
    /// Whether somebody else holds the handle of result i too: then it stays in its storage, and others see what
    /// replays write.
    std::function<bool(size_t)> shared{};
  };
  /// Calls `body`, or replays what it did. Result: its tensors, in storage that no earlier result holds. A call that
  /// differs in what is captured as it is (constants, flags, which gradients are there) is captured by itself, up to
  /// kMostCaptures of them; from then on the function runs. JitError for inputs that do not fit what was captured, and
  /// for what cannot be captured. `served`: number of the capture the result came from.
  Tensors call(const JitInputs& in, const Body& body, size_t* served = nullptr);
  static constexpr size_t kMostCaptures = 8;
  void reset();                         ///< forgets the capture and the memory it holds
  int count() const { return count_; }  ///< calls so far, replays not counted: 2 when captured
  bool captured() const { return replay_ != nullptr; }
  const Replay* replay() const { return replay_.get(); }
  void free_intermediates();
  const std::string& name() const { return name_; }
  /// Of the tensors it was captured with, in order.
  const std::vector<std::string>& input_names() const;
  /// Of the same tensors: a PARAM of shape, type and device, or the view of one.
  const std::vector<UOpRef>& input_patterns() const;
  /// Everything but the contents of `memory`, as bytes. Memory that tensors of `state` hold is left out: they are given
  /// to read() again. See io/jit_file.h. JitError
  /// for a function that is not captured, or holds what cannot be stored.
  void write(ByteWriter& w, std::vector<StoredMemory>& memory,
             const std::vector<std::pair<std::string, Tensor>>& state) const;
  /// A captured function that can be called; `memory` is what the caller fills. FormatError, DeviceError; ValueError
  /// for tensors missing in `state`.
  static std::shared_ptr<JitCore> read(ByteReader& r, const std::vector<std::pair<std::string, Tensor>>& state,
                                       std::vector<StoredMemory>& memory);

  /// How many handles a tensor has.
  static long handles(const Tensor& t);
  /// True while a function is being captured on this thread.
  static bool capturing();
  /// JitError while one is: `what` reads a value that would be frozen.
  static void check_not_capturing(const char* what);
  /// For what counts on the host and decides by it. While a function is being captured on this thread: `problem` is
  /// asked once it has run, once for each owner, and text is a JitError.
  static void at_capture_end(const void* owner, std::function<std::string()> problem);
  /// What was read on the host to decide something, of any type.
  using Decision = std::shared_ptr<const void>;
  /// Returns what `read` gives of `t`, by which the caller decides what to compute: a condition, a size. While a
  /// function is being captured that is what the run before it has read; the capture then serves calls whose arguments,
  /// as far as `t` depends on them, have the same contents. JitError for what cannot be compared from call to call:
  /// arguments of more than 4096 bytes, values that the function has realized.
  static Decision decide(const Tensor& t, const std::function<Decision()>& read);

 private:
  struct Input;
  struct Output;
  struct State;
  struct Multi;
  struct DryRun;
  struct Decisions;
  class DecisionScope;
  class Capture;
  class ReplayCall;
  class ShardedCall;
  class Reader;
  struct Recorded;
  struct RecordBytes;
  Tensors call_whole(const JitInputs& in, const Body& body);
  Tensors call_single(const JitInputs& in, const Body& body);
  Tensors run_uncaptured(const JitInputs& in, const Body& body);
  Tensors replay_call(const JitInputs& in, std::vector<Input> inputs);
  std::vector<Input> check_inputs(const JitInputs& in);
  void give_gradients(const JitInputs& in, Tensors& out) const;
  static Tensors arguments_of(const JitInputs& in);

  bool decided_alike(const JitInputs& in) const;
  bool decides() const;
  bool fits(const JitInputs& in) const;
  bool choose(const JitInputs& in);
  void swap_current(Recorded& other);
  RecordBytes record_bytes();
  bool merge_equal();

  std::string name_;
  bool prune_;
  int count_ = 0;
  std::unique_ptr<Replay> replay_;
  std::unique_ptr<State> state_;
  std::unique_ptr<DryRun> dry_run_;
  std::unique_ptr<Decisions> decisions_;  ///< of the last run that was not captured
  std::shared_ptr<const Multi> multi_;    ///< of the last call that ran the function
  std::vector<Recorded> others_;          ///< captures of calls with other constants, flags or gradients
  size_t capture_ = 0, captures_ = 0;     ///< number of the current one; how many there have been
  std::vector<std::shared_ptr<bool>>
      gradient_read_;                ///< by input of the first call: whether somebody looked at its gradient
  bool sharded() const;              ///< arguments or results lie on several devices
  void set_whole_results(size_t n);  ///< of a loaded function: none does
  bool loaded_ = false;
  Tensors held_;  ///< a loaded function: tensors of its state
  std::recursive_mutex mutex_;
};

namespace jit_detail {

template <class T> struct IsList : std::false_type {};
template <class T> struct IsList<std::vector<T>> : std::true_type {};
template <class T, size_t N> struct IsList<std::array<T, N>> : std::true_type {};
template <class T> struct IsTuple : std::false_type {};
template <class... T> struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B> struct IsTuple<std::pair<A, B>> : std::true_type {};
template <class T> struct IsOptional : std::false_type {};
template <class T> struct IsOptional<std::optional<T>> : std::true_type {};

/// `f` on every tensor, variable and other value in `v`; structs take part by a member `template <class F> void
/// visit_tensors(F&& f)`.
template <class T, class F> void visit(T& v, F&& f) {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<U, Tensor> || std::is_same_v<U, BoundVariable>) f(v);
  else if constexpr (IsList<U>::value)
    for (auto& x : v) visit(x, f);
  else if constexpr (IsTuple<U>::value) std::apply([&](auto&... x) { (visit(x, f), ...); }, v);
  else if constexpr (IsOptional<U>::value) {
    if (v) visit(*v, f);
  } else if constexpr (requires { v.visit_tensors([](Tensor&) {}); }) v.visit_tensors(f);
  else f(v);
}

/// A value that is captured as it is; types that do not print are not compared.
template <class T> std::string text_of(const T& v) {
  if constexpr (std::is_pointer_v<T>) return str(static_cast<const void*>(v));
  else if constexpr (requires(std::ostream& os) { os << v; }) return str(v);
  else if constexpr (requires { v.get(); }) return str(static_cast<const void*>(v.get()));
  else return {};
}

}  // namespace jit_detail

/// A jitted callable. Copies share what was captured.
template <class F> class Jit {
 public:
  Jit(F f, std::string name, bool prune)
      : f_(std::move(f)), shared_(std::make_shared<Shared>(std::move(name), prune)) {}

  /// Calls the function, captures it, or replays what was captured. Throws JitError where an input differs from the
  /// captured one in shape, dtype or device, and for a function that cannot be replayed faithfully.
  template <class... A> auto operator()(A&&... args) const {
    using R = std::invoke_result_t<F&, A&...>;
    JitInputs in;
    size_t n = 0;
    [[maybe_unused]] auto add = [&](auto& x) {
      using U = std::remove_cvref_t<decltype(x)>;
      if constexpr (std::is_same_v<U, Tensor>) {
        in.tensors.push_back(x);
        in.names.push_back("argument " + std::to_string(n));
      } else if constexpr (std::is_same_v<U, BoundVariable>) in.variables.push_back(x.uop());
      else in.constants.emplace_back("argument " + std::to_string(n), jit_detail::text_of(x));
    };
    ((jit_detail::visit(args, add), n++), ...);
    if constexpr (std::is_void_v<R>) {
      shared_->core.call(in, {[&] {
                           std::invoke(f_, args...);
                           return Tensors();
                         }});
    } else {
      using Value = std::remove_cvref_t<R>;
      std::optional<Value> result;
      bool ran = false;
      size_t capture = 0;
      const JitCore::Body body{[&] {
                                 result.emplace(std::invoke(f_, args...));
                                 ran = true;
                                 return tensors_of(*result);
                               },
                               [&](size_t i) { return JitCore::handles(tensors_of(*result)[i]) > 3; }};
      Tensors out = shared_->core.call(in, body, &capture);
      if (ran && shared_->core.captured()) {
        auto shape = std::make_shared<Value>(*result);
        each(*shape, [](Tensor& t) { t = Tensor(); });
        shared_->set(capture, shape);
      }
      if (!ran) result.emplace(*static_cast<const Value*>(shared_->get(capture).get()));
      size_t i = 0;
      each(*result, [&](Tensor& t) { t = out[i++]; });
      return std::move(*result);
    }
  }
  void reset() const { shared_->core.reset(); }
  JitCore& core() const { return shared_->core; }

 private:
  template <class V, class G> static void each(V& v, G g) {
    jit_detail::visit(v, [&](auto& x) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(x)>, Tensor>) g(x);
      else
        static_assert(
            std::is_same_v<std::remove_cvref_t<decltype(x)>, BoundVariable>,
            "a jitted function returns tensors only: other values would be those of the captured call forever");
    });
  }
  template <class V> static Tensors tensors_of(V& v) {
    Tensors out;
    each(v, [&](Tensor& t) { out.push_back(t); });
    return out;
  }
  struct Shared {
    /// What the copies of a Jit have in common.
    Shared(std::string name, bool prune) : core(std::move(name), prune) {}
    JitCore core;
    /// The result of a capture without its tensors.
    std::shared_ptr<void> get(size_t capture) {
      std::lock_guard lock(mutex);
      return shapes.at(capture);
    }
    void set(size_t capture, std::shared_ptr<void> shape) {
      std::lock_guard lock(mutex);
      shapes.insert_or_assign(capture, std::move(shape));
    }

   private:
    std::mutex mutex;
    std::map<size_t, std::shared_ptr<void>> shapes;
  };
  mutable F f_;  // called as it is: a function with state changes it, whoever holds this
  std::shared_ptr<Shared> shared_;
};

struct JitOptions {
  std::string name = "function";  ///< in errors
  bool prune =
      false;  ///< kernels that depend on no argument, no random number and nothing that is written run once only
};
/// `f` with capture and replay: the first call runs it, the second records it, later ones replay. Arguments are
/// tensors, bound variables, and lists, tuples and structs of them; a call with other values is captured by itself. See
/// docs/jit.md for what a captured function may do.
template <class F> Jit<std::decay_t<F>> jit(F&& f, const JitOptions& o = {}) {
  return Jit<std::decay_t<F>>(std::forward<F>(f), o.name, o.prune);
}

}  // namespace tg
