/// \file Cancellation: scheduling, compiling, launching and replaying poll for a stop request between their steps.
#pragma once
#include <atomic>
#include <stop_token>

namespace tg {

/// While it lives, work on this thread (realize, compile, replay) ends with Cancelled soon after a stop was requested.
/// Scopes nest; any of them stops. A cancelled operation leaves every tensor as it was: from the first kernel that
/// writes to existing storage on, a run is completed.
class StopScope {
 public:
  explicit StopScope(std::stop_token token);
  /// A flag set from outside, by a signal handler for example; it must outlive the scope.
  explicit StopScope(const std::atomic<bool>& flag);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  friend class Cancellation;
  std::stop_token token_;
  const std::atomic<bool>* flag_ = nullptr;
  const StopScope* before_;
};

/// The scopes of a thread, as its work sees them.
class Cancellation {
 public:
  static Cancellation current() { return Cancellation(top_); }
  /// Returns whether a stop could be requested at all.
  explicit operator bool() const { return top() != nullptr; }
  bool requested() const {
    for (const StopScope* s = top(); s; s = s->before_)
      if (s->token_.stop_requested() || (s->flag_ && s->flag_->load(std::memory_order_relaxed))) return true;
    return false;
  }
  /// Throws Cancelled, naming the operation, when a stop was requested on this thread.
  static void check(const char* what) {
    if (top_ && current().requested()) [[unlikely]]
      cancelled(what);
  }
  [[noreturn]] static void cancelled(const char* what);

  /// Makes another thread's scopes apply to this one, which works for it.
  class Adopt {
   public:
    explicit Adopt(Cancellation s) : before_(top_) { top_ = s.mine_; }
    ~Adopt() { top_ = before_; }
    Adopt(const Adopt&) = delete;

   private:
    const StopScope* before_;
  };

  /// From begin() on, nothing stops this thread until the end of the scope.
  class Hold {
   public:
    Hold() : before_(top_) {}
    ~Hold() { top_ = before_; }
    Hold(const Hold&) = delete;
    void begin() { top_ = nullptr; }

   private:
    const StopScope* before_;
  };

 private:
  friend class StopScope;
  explicit Cancellation(const StopScope* s) : mine_(s) {}
  const StopScope* top() const { return mine_; }
  const StopScope* mine_;
  static constinit thread_local const StopScope* top_;
};

}  // namespace tg
