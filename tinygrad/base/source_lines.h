/// \file Lines of source behind the machine code of this process, from its debug information.
#pragma once
#include <string>

namespace tg {

struct SourceLine {
  std::string path;  ///< as the compiler saw it, without "." and ".."
  int line = 0;      ///< from 1
};

/// Returns the innermost line on the stack of this thread that is neither the library's nor the compiler's, inlined
/// functions included: the statement of the program that is being executed. `line` is 0 where there is none, the
/// program was compiled without -g, or libdw (Debian: libdw1) is not installed. The first call reads the tables of the
/// program.
SourceLine calling_line();

}  // namespace tg
