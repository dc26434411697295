"""Scalars that are made from numbers: their gradients, and what they stay in graphs, captures and prints."""
import numpy as np
import pytest

from tinygrad_cpp import GlobalCounters, Tensor, TinyJit, dtypes

TWOS = {
  "number": lambda: Tensor(2.0),
  "typed": lambda: Tensor(2.0, dtype=dtypes.float32),
  "numpy array": lambda: Tensor(np.array(2.0, np.float32)),
  "numpy scalar": lambda: Tensor(np.float32(2.0)),
  "required": lambda: Tensor(2.0).requires_grad_(True),
  "requires_grad=": lambda: Tensor(2.0, requires_grad=True),
  "const": lambda: Tensor.const(2.0, dtypes.float32),
  "full": lambda: Tensor.full((), 2.0),
  "full with an axis": lambda: Tensor.full((1,), 2.0),
  "ones times 2": lambda: Tensor.ones(1) * 2,
  "list": lambda: Tensor([2.0]),
  "contiguous": lambda: Tensor(2.0).contiguous(),
  "realized": lambda: Tensor(2.0).contiguous().realize(),
}


def six(q): return (Tensor([3.0]) * q * 2).sum()


@pytest.mark.parametrize("make", TWOS.values(), ids=TWOS)
def test_gradient_is_not_that_of_equal_literals(make):
  q = make()
  assert six(q).gradient(q)[0].numpy().sum() == 6
  q = make()
  six(q).backward()
  assert q.grad.numpy().sum() == 6 and q.grad.dtype is dtypes.float32
  six(q).backward()
  assert q.grad.numpy().sum() == 12


@pytest.mark.parametrize("make", TWOS.values(), ids=TWOS)
def test_gradients_of_equal_scalars(make):
  q, r = make(), make()
  assert [t.numpy().sum() for t in (q * r * r).sum().gradient(q, r)] == [4, 8]


@pytest.mark.parametrize("make", TWOS.values(), ids=TWOS)
def test_second_order(make):
  q = make()
  once = (q ** 3 * 2).sum().gradient(q)[0].sum()
  assert once.item() == 24 and once.gradient(q)[0].numpy().sum() == 24


@pytest.mark.parametrize("make", TWOS.values(), ids=TWOS)
def test_in_a_captured_function(make):
  @TinyJit
  def f(x):
    q = make()
    return (x * q * 2).sum().gradient(q)[0].sum().realize()

  assert [f(Tensor([float(i), 1.0]).realize()).item() for i in range(5)] == [2 * (i + 1) for i in range(5)]


@pytest.mark.parametrize("make", TWOS.values(), ids=TWOS)
def test_scalars_from_outside_of_a_captured_function(make):
  q = make()

  @TinyJit
  def f(x): return (x * q * 2).sum().gradient(q)[0].sum().realize()

  assert [f(Tensor([float(i), 1.0]).realize()).item() for i in range(5)] == [2 * (i + 1) for i in range(5)]


def test_a_scalar_is_part_of_kernels():
  x = Tensor([1.0, 2.0]).realize()
  for make in (TWOS["number"], TWOS["typed"], TWOS["numpy array"], TWOS["full"]):
    GlobalCounters.reset()
    assert (x * make() + 1).tolist() == [3, 5]
    assert GlobalCounters.kernel_count == 1
    GlobalCounters.reset()
    assert make().item() == 2 and make().tolist() == 2
    assert GlobalCounters.kernel_count == 0


def test_a_scalar_adapts_and_prints_as_before():
  t = Tensor(2.0)
  assert t.dtype is dtypes.weakfloat and (Tensor([1.0], dtype="half") * t).dtype is dtypes.half
  assert "tag" not in repr(t) and "CONST" not in repr(t)
  y = Tensor([1.0, 2.0], dtype="half")
  y[0] = Tensor(7.0, dtype=dtypes.float32)
  assert y.tolist() == [7, 2]


def test_gradient_of_a_half_scalar():
  q = Tensor(2.0)
  g = (Tensor([3.0], dtype="half") * q * 2).sum().gradient(q)[0]
  assert g.item() == 6


def test_power_of_zero():
  for f in (lambda t: t ** 0, lambda t: t.pow(0.0), lambda t: t * 0):
    t = Tensor([1.0, 2.0], requires_grad=True)
    f(t).sum().backward()
    assert t.grad.tolist() == [0, 0]
  assert (Tensor([0.0, float("nan"), float("inf")]) ** 0).tolist() == [1, 1, 1]
  assert (Tensor([0, 3]) ** 0).tolist() == [1, 1]


def test_scatter_combines_tensors():
  x, index, src = Tensor([1.0, 2.0, 3.0]), Tensor([1, 1]), Tensor([7.0, 8.0])
  assert x.scatter(0, index, src, reduce="add").tolist() == [1, 17, 3]
  assert x.scatter(0, index, src, reduce="multiply").tolist() == [1, 112, 3]
  assert x.scatter(0, index, 2, reduce="add").tolist() == [1, 6, 3]
  assert x.scatter(0, Tensor(1), Tensor(7.0)).tolist() == [1, 7, 3]
  assert x.gather(0, Tensor(1)).item() == 2 and Tensor(5.0).gather(0, Tensor([0, 0])).tolist() == [5, 5]
  assert Tensor(5.0).topk(1)[0].item() == 5


def test_numbers_of_numpy_have_storage():
  """An array without axes is data: it may be an argument of a captured function."""
  for v in (np.int64(3), np.float32(2.5), np.array(7, dtype=np.uint8)):
    t = Tensor(v).realize()
    assert t.shape == () and t.dtype.fmt == np.asarray(v).dtype.char.replace("l", "q") and t.item() == v
  double = TinyJit(lambda x: (x * 2).realize())
  for i in range(5): assert double(Tensor(np.int64(i)).realize()).item() == 2 * i
