/// \file The signal handler that stops the library's work and then calls Python's.
#include "interrupt.h"

#include <pthread.h>

#include <atomic>

namespace tg::python {

namespace nb = nanobind;

namespace {
std::atomic<bool> interrupted{false};
struct sigaction pythons{};  // what was installed before
bool active = false;         // on the main thread, under the GIL

void on_interrupt(int signal) {
  interrupted.store(true, std::memory_order_relaxed);
  if (pythons.sa_handler != SIG_DFL && pythons.sa_handler != SIG_IGN) pythons.sa_handler(signal);
}

/// This is Python's main thread, and Ctrl-C means what it means by default.
bool wanted() {
  static const auto main =
      nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  if (main != reinterpret_cast<unsigned long>(pthread_self())) return false;
  // Of the C module: what `signal` wraps around it takes longer than a small kernel.
  static const nb::object& getsignal = *new nb::object(nb::module_::import_("_signal").attr("getsignal"));
  static const nb::object& by_default = *new nb::object(nb::module_::import_("signal").attr("default_int_handler"));
  return getsignal(SIGINT).is(by_default);
}
}  // namespace

InterruptScope::InterruptScope() {
  if (active || !wanted()) return;
  struct sigaction ours{};
  ours.sa_handler = on_interrupt;
  ours.sa_flags = SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  interrupted = false;
  if (sigaction(SIGINT, &ours, &pythons) != 0) return;
  active = installed_ = true;
  scope_.emplace(interrupted);
}

InterruptScope::~InterruptScope() {
  if (!installed_) return;
  active = false;
  scope_.reset();
  struct sigaction now{};
  if (sigaction(SIGINT, &pythons, &now) == 0 && now.sa_handler != on_interrupt)
    sigaction(SIGINT, &now, nullptr);  // somebody else's meanwhile
}

}  // namespace tg::python
