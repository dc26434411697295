"""Lesson 2: shapes, types, broadcasting, views, reductions, indexing."""
from tinygrad_cpp import GlobalCounters, Tensor, dtypes


NUMPY_NAMES = {dtypes.float32: "float32", dtypes.int32: "int32", dtypes.uint8: "uint8"}


def flat(values):
  return [v for x in values for v in flat(x)] if isinstance(values, list) else [values]


def show(what, t):
  shape = ", ".join(str(n) for n in t.shape)
  print(f"{what} ({shape}) {NUMPY_NAMES[t.dtype]}:", *(f"{float(v):g}" for v in flat(t.tolist())))


# ---- 1. Lists make tensors. Integers give int32, floats float32. ----
a, row = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), Tensor([10, 20, 30])
show("a", a)
show("row", row)

# ---- 2. Broadcasting: sizes of 1 and missing axes repeat. int32 + float32 is float32. ----
show("a + row", a + row)
show("column * row", Tensor([1, 2]).reshape(2, 1) * row)

# ---- 3. Types: integer division rounds down, true division is float; a cast is explicit. ----
show("7 // -2", Tensor([7]) // Tensor([-2]))
show("7 / 2", Tensor([7]) / 2)
show("as uint8", Tensor([300, -1]).cast(dtypes.uint8))
show("halves", Tensor([1.0, 0.1]).half().float())

# ---- 4. Views are index arithmetic: no element is copied. ----
show("transposed", a.T)
show("flattened", a.reshape(-1))
show("backwards", a[:, ::-1])
show("padded", row.pad(((1, 1),)))
GlobalCounters.reset()
show("all of it", a.permute(1, 0).reshape(6).flip(0)[0:2])
print("kernels:", GlobalCounters.kernel_count)  # all views are one expression

# ---- 5. Reductions take axes; keepdim lets the result broadcast back. ----
show("sum", a.sum())
show("rows' means", a.mean(1))
show("centred", a - a.mean(1, keepdim=True))
show("argmax", a.argmax(1))

# ---- 6. Indexing: integers, slices, tensors of integers, masks. ----
show("a[1]", a[1])
show("a[:, 2]", a[:, 2])
show("a[[1, 0]]", a[Tensor([1, 0])])
show("a > 2 ? a : 0", (a > 2).where(a, 0))

# ---- 7. Writing to elements changes storage in place. ----
z = Tensor.zeros(2, 3).contiguous()
z[0, 1:3] = 7
show("z", z)
