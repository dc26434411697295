/// \file Out-of-line part of the errors: the report of a failed internal check.
#include "tinygrad/base/error.h"

namespace tg {

void internal_error(const char* file, int line, const char* condition, const std::string& what) {
  // The path from the project's root says enough and is the same on every machine.
  std::string where = file;
  if (const size_t at = where.rfind("tinygrad/"); at != std::string::npos) where.erase(0, at);
  throw InternalError(
      str("internal error at ", where, ":", line, ": ", condition, " does not hold", what.empty() ? "" : ": ", what));
}

}  // namespace tg
