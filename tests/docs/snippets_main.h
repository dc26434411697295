/// \file The C++ of the documentation as functions by page and number; tools/snippets.py writes the files that register
/// them.
#pragma once

namespace snippets {

/// Says on standard output that what follows is printed by block `k` of the running group.
void mark(int k);

/// Enters `run` as group `number` of `page`.
struct Register {
  Register(const char* page, int number, void (*run)());
};

}  // namespace snippets
