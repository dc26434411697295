/// \file How tests look into the fake driver, and make it fail.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tg::fake {

/// What lives.
struct Living {
  int contexts = 0, streams = 0, events = 0, modules = 0, graphs = 0, executables = 0;
  int blocks = 0, pinned = 0;
  bool operator==(const Living&) const = default;
};

/// Memory that a command touches.
struct Access {
  const void* address = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

/// Functions of an opened fake driver: the symbol "fake_gpu_control" is one of these.
struct Control {
  /// Makes the nth call from now (1: the next) of the function with this symbol return an error, once.
  void (*fail_call)(const char* symbol, int nth, int error);
  /// Makes the nth command from now that a stream of the device executes end with an error, which fails the device.
  void (*fail_command)(int device, int nth, int error);
  /// Returns how many calls of a function there were, of any for an empty symbol.
  size_t (*count_calls)(const char* symbol);
  /// Returns the symbol of a call by its number, from 0.
  const char* (*call)(size_t number);
  /// Returns what the runtime did wrong so far, a line each, and forgets it. Valid until the next call.
  const char* (*take_violations)();
  Living (*living)();
  /// Lets every command begin after a pseudo-random time of at most so many microseconds.
  void (*set_delay)(int microseconds);
  /// Whether devices reach one another's memory.
  void (*set_peers)(bool reach);
  /// Returns the bytes of the last command of this symbol that launched a kernel: grid, block, dynamic shared bytes.
  void (*last_launch)(unsigned grid[3], unsigned block[3], unsigned* shared_bytes);
  /// What another library does with a device: enqueues a command that touches this memory and returns an error of the
  /// driver; says how many commands a stream got, and which device is current, and where that is.
  int (*enqueue)(void* stream, const Access* accesses, size_t count, int (*run)(void*), void* argument);
  uint64_t (*commands)(void* stream);
  int (*device)();
  const char* (*place)();
};

}  // namespace tg::fake
