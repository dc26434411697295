/// \file How tests look into the fake NCCL, and make it fail.
#pragma once
#include <cstddef>

namespace tg::fake {

/// Functions of an opened fake NCCL: the symbol "fake_nccl_control" is one of these.
struct NcclControl {
  /// Makes the nth call from now (1: the next) of the function with this symbol return an error, once.
  void (*fail_call)(const char* symbol, int nth, int error);
  /// Makes the nth command from now stop on its stream until its communicator is aborted; `error` is what the
  /// communicator says from then on, 0 for nothing.
  void (*stop_command)(int nth, int error);
  size_t (*count_calls)(const char* symbol);
  /// Returns what was done wrong so far, a line each, and forgets it. Valid until the next call.
  const char* (*take_violations)();
  /// Returns how many communicators there are that were neither destroyed nor aborted.
  int (*living)();
};

}  // namespace tg::fake
