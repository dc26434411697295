/// \file Names of types in WGSL.
#pragma once
#include <string>

#include "tinygrad/base/dtype.h"

namespace tg {
/// Returns the type that values of `d` have in registers: "i32" of int8. Throws DTypeError where there is none.
std::string wgsl_type(DType d);
/// Returns a word for the type in names of functions: "i8".
std::string wgsl_tag(DType d);
}  // namespace tg
