// The smallest program outside the project: find_package, include, link, run.
#include <iostream>

#if __has_include(<tinygrad/tinygrad.h>)
#include <tinygrad/tinygrad.h>

int main() {
  const float sum = tg::Tensor::ones({2, 3}).sum().item<float>();
  std::cout << sum << "\n";
  return sum == 6.0f ? 0 : 1;
}
#else
#include <tinygrad/base/dtype.h>

int main() {
  const tg::DType d = tg::least_upper_dtype(tg::dtypes::float16, tg::dtypes::bfloat16);
  std::cout << d << "\n";
  return d == tg::dtypes::float32 ? 0 : 1;
}
#endif
