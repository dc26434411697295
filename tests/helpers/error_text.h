/// \file What an error says.
#pragma once
#include <string>
#include <utility>

#include "tinygrad/base/error.h"

namespace tg::test {

/// Returns the message of the error of type E that `f` throws, "no error" where it throws nothing. Other errors pass.
template <class E = Error, class F> std::string error_text(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const E& e) { return e.what(); }
  return "no error";
}

}  // namespace tg::test
