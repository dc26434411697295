/// \file Lesson 2: shapes, types, broadcasting, views, reductions, indexing.
#include <cstdio>
#include <string>

#include "tinygrad/tinygrad.h"

using namespace tg;

static void show(const char* what, const Tensor& t) {
  std::printf("%s (", what);
  for (int64_t i = 0; i < t.ndim(); i++)
    std::printf("%s%d", i ? ", " : "", static_cast<int>(t.shape(static_cast<int>(i))));
  std::printf(") %s:", str(t.dtype()).c_str());
  for (const double v : t.to_vector<double>()) std::printf(" %g", v);
  std::printf("\n");
}

int main() {
  // ---- 1. Lists make tensors. Integers give int32, floats float32. ----
  const Tensor a = {{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, row = {10, 20, 30};
  show("a", a);
  show("row", row);

  // ---- 2. Broadcasting: sizes of 1 and missing axes repeat. int32 + float32 is float32. ----
  show("a + row", a + row);
  show("column * row", Tensor({1, 2}).reshape(2, 1) * row);

  // ---- 3. Types: integer division rounds down, true division is float; a cast is explicit. ----
  show("7 // -2", Tensor({7}).floor_div(Tensor({-2})));
  show("7 / 2", Tensor({7}) / 2);
  show("as uint8", Tensor({300, -1}).cast(dtypes::uint8));
  show("halves", Tensor({1.f, 0.1f}).half().to_float());

  // ---- 4. Views are index arithmetic: no element is copied. ----
  show("transposed", a.T());
  show("flattened", a.reshape(-1));
  show("backwards", a(Slice(), Slice(None, None, -1)));
  show("padded", row.pad({{1, 1}}));
  GlobalCounters::reset();
  show("all of it", a.permute({1, 0}).reshape(6).flip(0)(Slice(0, 2)));
  std::printf("kernels: %d\n", static_cast<int>(GlobalCounters::kernels.load()));  // all views are one expression

  // ---- 5. Reductions take axes; keepdim lets the result broadcast back. ----
  show("sum", a.sum());
  show("rows' means", a.mean(1));
  show("centred", a - a.mean({.axis = 1, .keepdim = true}));
  show("argmax", a.argmax(1));

  // ---- 6. Indexing: integers, slices, tensors of integers, masks. ----
  show("a[1]", a(1));
  show("a[:, 2]", a(Slice(), 2));
  show("a[[1, 0]]", a[Tensor({1, 0})]);
  show("a > 2 ? a : 0", (a > 2).where(a, 0));

  // ---- 7. Writing to elements changes storage in place. ----
  const Tensor z = Tensor::zeros(2, 3).contiguous();
  z.at(0, Slice(1, 3)) = 7;
  show("z", z);
}
