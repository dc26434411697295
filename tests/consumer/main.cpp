// The smallest program outside the project: find_package, include, link, run.
#include <iostream>

#include "tinygrad/base/dtype.h"

int main() {
  const tg::DType d = tg::least_upper_dtype(tg::dtypes::float16, tg::dtypes::bfloat16);
  std::cout << d << "\n";
  return d == tg::dtypes::float32 ? 0 : 1;
}
