"""Lesson 3: what a graph consists of, and a matrix product from movement, multiplication and a sum."""
from collections import Counter

from tinygrad_cpp import GlobalCounters, Tensor


def count_ops(what, t):
  """Prints how often each operation occurs in the graph of a tensor."""
  counts = Counter(u.op.name for u in t.uop.toposort())
  shown = ["RESHAPE", "EXPAND", "PERMUTE", "ADD", "MUL", "REDUCE", "WHERE", "CAST"]
  print(f"{what}:", *(f"{op} {counts[op]}" for op in shown if op in counts))


def show(what, t): print(what, *(f"{v:g}" for row in t.tolist() for v in row))


a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()  # 2 x 3
b = Tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).realize()  # 3 x 2

# ---- 1. Three kinds of operations: of elements, of shapes, reductions. All others are made of these. ----
count_ops("elements", a * 2 + 1)
count_ops("shape", a.reshape(3, 2).permute(1, 0))
count_ops("reduction", a.sum(1))

# ---- 2. The same expression is the same node: identity is content. ----
print("a + 1 is a + 1:", "yes" if (a + 1).uop is (a + 1).uop else "no")
print("a + 1 is a + 2:", "yes" if (a + 1).uop is (a + 2).uop else "no")

# ---- 3. A matrix product by hand: c[i, j] = sum over k of a[i, k] * b[k, j]. ----
left = a.reshape(2, 1, 3)  # i, 1, k
right = b.permute(1, 0).reshape(1, 2, 3)  # 1, j, k
product = left * right  # i, j, k: exists in the graph alone
c = product.sum(2)  # i, j
count_ops("by hand", c)
show("by hand:", c)
show("matmul: ", a @ b)

# ---- 4. Both are one kernel that stores 4 numbers; the 12 products are never in memory. ----
for by_hand in (True, False):
  large = Tensor.ones(64, 64).contiguous().realize()
  GlobalCounters.reset()
  t = (large.reshape(64, 1, 64) * large.T.reshape(1, 64, 64)).sum(2) if by_hand else large @ large
  t.realize()
  kernels = GlobalCounters.kernel_count
  print(f"{'by hand' if by_hand else 'matmul '}: {kernels} kernel, element {t[3, 5].item():g}")

# ---- 5. einsum is the same construction from a formula. ----
show("einsum: ", Tensor.einsum("ik,kj->ij", a, b))

# ---- 6. A schedule says what a run would do, without doing it. ----
print("matmul, relu and + 1:", len(((a @ b).relu() + 1).schedule()), "kernel")
