/// \file How tests look into fake Metal, and make it fail.
#pragma once
#include <cstdint>

namespace tg::fake_metal {

/// Functions of the fake library: the symbol "fake_metal_control" is one of these.
struct Control {
  /// Makes the nth message from now (1: the next) with this selector return nil, once.
  void (*fail_message)(const char* selector, int nth);
  /// Makes the nth command buffer from now that the GPU executes end with an error.
  void (*fail_commands)(int nth);
  /// Lets command buffers begin after a random time of at most so many microseconds.
  void (*set_delay)(int microseconds);
  /// Makes broken rules be noted instead of ending the process.
  void (*note_violations)(bool note);
  /// Returns the broken rules noted, a line each, and forgets them. Valid until the next call on the thread.
  const char* (*take_violations)();
  /// Returns how many objects of a class live.
  int64_t (*living)(const char* class_name);
  /// Returns how many indirect commands were executed.
  int64_t (*indirect_commands)();
  /// Returns the types of the methods of a selector, a line "CLASS TYPES" each. Valid until the next call on the
  /// thread.
  const char* (*types_of)(const char* selector);
};

}  // namespace tg::fake_metal
