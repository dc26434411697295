/// \file The chain of stop scopes of a thread.
#include "tinygrad/base/cancellation.h"

#include "tinygrad/base/error.h"

namespace tg {

constinit thread_local const StopScope* Cancellation::top_ = nullptr;

StopScope::StopScope(std::stop_token token) : token_(std::move(token)), before_(Cancellation::top_) {
  Cancellation::top_ = this;
}
StopScope::StopScope(const std::atomic<bool>& flag) : flag_(&flag), before_(Cancellation::top_) {
  Cancellation::top_ = this;
}
StopScope::~StopScope() { Cancellation::top_ = before_; }

void Cancellation::cancelled(const char* what) {
  throw Cancelled(str("[", what, "] stopped on request, before its results were there"));
}

}  // namespace tg
