/// \file Ctrl-C while the library works without the GIL.
#pragma once
#include <nanobind/nanobind.h>
#include <signal.h>

#include <optional>

#include "tinygrad/base/cancellation.h"

namespace tg::python {

/// While one lives on the main thread, SIGINT stops what the library computes; Python's own handler is called as well,
/// so that KeyboardInterrupt is what the caller sees. Nothing changes for programs that handle SIGINT themselves, and
/// on other threads.
class InterruptScope {
 public:
  InterruptScope();  ///< with the GIL
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;

 private:
  bool installed_ = false;
  std::optional<StopScope> scope_;
};

/// Gives up the GIL for work that may take long.
struct Unlocked {
  InterruptScope interrupt;
  nanobind::gil_scoped_release release;
};

}  // namespace tg::python
