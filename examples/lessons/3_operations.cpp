/// \file Lesson 3: what a graph consists of, and a matrix product from movement, multiplication and a sum.
#include <cstdio>
#include <map>
#include <string>

#include "tinygrad/tinygrad.h"
#include "tinygrad/uop/graph.h"

using namespace tg;

/// Prints how often each operation occurs in the graph of a tensor.
static void count_ops(const char* what, const Tensor& t) {
  const GraphScope scope;  // whoever touches nodes of tensors holds the lock of their graph
  std::map<std::string, int> counts;
  for (const UOp u : t.uop().toposort()) counts[std::string(name_of(u.op()))]++;
  std::printf("%s:", what);
  for (const char* op : {"RESHAPE", "EXPAND", "PERMUTE", "ADD", "MUL", "REDUCE", "WHERE", "CAST"})
    if (counts.contains(op)) std::printf(" %s %d", op, counts[op]);
  std::printf("\n");
}

int main() {
  const Tensor a = Tensor({{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}).realize();    // 2 x 3
  const Tensor b = Tensor({{1.f, 0.f}, {0.f, 1.f}, {1.f, 1.f}}).realize();  // 3 x 2

  // ---- 1. Three kinds of operations: of elements, of shapes, reductions. All others are made of these. ----
  count_ops("elements", a * 2 + 1);
  count_ops("shape", a.reshape(3, 2).permute({1, 0}));
  count_ops("reduction", a.sum(1));

  // ---- 2. The same expression is the same node: identity is content. ----
  const Tensor one = a + 1, again = a + 1, two = a + 2;
  std::printf("a + 1 is a + 1: %s\n", one.uop() == again.uop() ? "yes" : "no");
  std::printf("a + 1 is a + 2: %s\n", one.uop() == two.uop() ? "yes" : "no");

  // ---- 3. A matrix product by hand: c[i, j] = sum over k of a[i, k] * b[k, j]. ----
  const Tensor left = a.reshape(2, 1, 3);                   // i, 1, k
  const Tensor right = b.permute({1, 0}).reshape(1, 2, 3);  // 1, j, k
  const Tensor product = left * right;                      // i, j, k: exists in the graph alone
  const Tensor c = product.sum(2);                          // i, j
  count_ops("by hand", c);
  std::printf("by hand:");
  for (const double v : c.to_vector<double>()) std::printf(" %g", v);
  std::printf("\nmatmul: ");
  for (const double v : a.matmul(b).to_vector<double>()) std::printf(" %g", v);
  std::printf("\n");

  // ---- 4. Both are one kernel that stores 4 numbers; the 12 products are never in memory. ----
  for (const bool by_hand : {true, false}) {
    const Tensor large = Tensor::ones(64, 64).contiguous().realize();
    GlobalCounters::reset();
    const Tensor t = by_hand ? (large.reshape(64, 1, 64) * large.T().reshape(1, 64, 64)).sum(2) : large.matmul(large);
    t.realize();
    const int kernels = static_cast<int>(GlobalCounters::kernels.load());
    std::printf("%s: %d kernel, element %g\n", by_hand ? "by hand" : "matmul ", kernels, t(3, 5).item<double>());
  }

  // ---- 5. einsum is the same construction from a formula. ----
  std::printf("einsum: ");
  for (const double v : Tensor::einsum("ik,kj->ij", {a, b}).to_vector<double>()) std::printf(" %g", v);
  std::printf("\n");

  // ---- 6. A schedule says what a run would do, without doing it. ----
  const BoundSchedule schedule = (a.matmul(b).relu() + 1).schedule();
  std::printf("matmul, relu and + 1: %d kernel\n", static_cast<int>(schedule.schedule->calls.size()));
}
