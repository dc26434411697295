/// \file Lesson 1: tensors are lazy expressions with NumPy's rules for shapes and types.
#include <iostream>
#include <stdexcept>

#include "tinygrad/tinygrad.h"

using tg::Slice, tg::Tensor;

static void check(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

int main() {
  // Nested lists make tensors; floats give float32, integers int32.
  const Tensor a = {{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}};
  const Tensor row = {10, 20, 30};
  std::cout << "a " << a.shape() << " " << a.dtype() << ", row " << row.shape() << " " << row.dtype() << "\n";

  // Shapes broadcast: the row is added to each row of a, and int32 + float32 is float32. Nothing has been computed yet.
  const Tensor sum = a + row;
  check(sum.shape() == tg::Shape{2, 3} && sum.dtype() == tg::dtypes::float32, "broadcast shape and type");
  check(!sum.is_realized(), "expressions are lazy");

  // Printing, item(), data() and to_vector() compute. All that was pending runs as one fused kernel.
  std::cout << "a + row =\n" << sum << "\n";
  check(sum.to_vector<float>() == std::vector<float>{11, 22, 33, 14, 25, 36}, "a + row");

  // A column against a row: (3, 1) * (1, 4) -> (3, 4).
  const Tensor table = Tensor::arange(1, 4).reshape(3, 1) * Tensor::arange(1, 5).reshape(1, 4);
  std::cout << "multiplication table =\n" << table << "\n";
  check(table.to_vector<int>() == std::vector<int>{1, 2, 3, 4, 2, 4, 6, 8, 3, 6, 9, 12}, "outer product");

  // Reductions take axes; keepdim keeps them as size 1, so the result broadcasts back.
  const Tensor centered = a - a.mean({.axis = 1, .keepdim = true});
  check(centered.to_vector<float>() == std::vector<float>{-1, 0, 1, -1, 0, 1}, "rows minus their mean");
  check(a.sum().item<float>() == 21, "sum of everything");
  check(a.max(0).to_vector<float>() == std::vector<float>{4, 5, 6}, "greatest of each column");

  // Views share storage: transposing, slicing and flipping cost nothing.
  check(a.T()(1).to_vector<float>() == std::vector<float>{2, 5}, "second column");
  check(a(Slice(), Slice(tg::None, tg::None, -1)).to_vector<float>() == std::vector<float>{3, 2, 1, 6, 5, 4},
        "columns backwards");

  // Conditions are bool tensors.
  check((a > 3).where(a, 0).to_vector<float>() == std::vector<float>{0, 0, 0, 4, 5, 6}, "where");

  // Mistakes are reported where they are made, with the shapes.
  try {
    a + Tensor::ones(4);
    check(false, "shapes that do not fit");
  } catch (const tg::ShapeError& e) { std::cout << "as expected: " << e.what() << "\n"; }
}
