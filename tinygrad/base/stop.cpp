/// \file The chain of stop scopes of a thread.
#include "tinygrad/base/stop.h"

#include "tinygrad/base/error.h"

namespace tg {

constinit thread_local const StopScope* Stop::top_ = nullptr;

StopScope::StopScope(std::stop_token token) : token_(std::move(token)), before_(Stop::top_) { Stop::top_ = this; }
StopScope::StopScope(const std::atomic<bool>& flag) : flag_(&flag), before_(Stop::top_) { Stop::top_ = this; }
StopScope::~StopScope() { Stop::top_ = before_; }

void Stop::cancelled(const char* what) {
  throw Cancelled(str("[", what, "] stopped on request, before its results were there"));
}

}  // namespace tg
