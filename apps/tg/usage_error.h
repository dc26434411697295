/// \file UsageError: what is wrong with the words of a command line.
#pragma once
#include "tinygrad/base/error.h"

namespace tg::app {

/// A command line that is not understood, where the command finds out and not the parser of options: tg ends with
/// kUsage.
struct UsageError : ValueError {
  using ValueError::ValueError;
};

}  // namespace tg::app
