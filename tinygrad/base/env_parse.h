/// \file Reading the environment variables of a process.
#pragma once
#include <functional>

#include "tinygrad/base/env.h"

namespace tg::env::detail {

/// Returns the values an environment gives; `lookup` is std::getenv or a substitute.
Values parse(const std::function<const char*(const char*)>& lookup);

}  // namespace tg::env::detail
