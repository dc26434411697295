"""A function of a number is what the same function of a buffer is, to the bit: for every method of Tensor that maps one
float, or two, to one."""
import inspect, math
import numpy as np, pytest
from tinygrad_cpp import Tensor

INF, NAN = math.inf, math.nan
VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.3, 2.0, 3.0, -2.5, 41.0, 80.0, 1e-3, 12345.678, 1e5, -1e8, 1e20, 1e38,
          -1e38, 1e-38, 1e-40, INF, -INF, NAN]
EXPONENTS = [0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0, 0.3, INF, -INF, NAN]
DTYPES = ["float32", "float64", "half", "bfloat16"]
# Methods that draw random numbers, look at several elements, change the tensor or are about storage.
OTHERS = {"dropout", "detach", "contiguous", "contiguous_backward", "clone", "realize", "schedule",
          "empty_like", "squeeze", "pow"}  # powers by a number are products, see below

def bits(t):
  a = t.cast("float64").numpy().astype(np.float64)  # exact
  return np.where(np.isnan(a), NAN, a).view(np.int64)

def maps_elements(name, others=()):
  """Whether the method gives two floats for two, each from its own."""
  if name.startswith("_") or name.endswith("_") or name in OTHERS: return False
  f = inspect.getattr_static(Tensor, name)
  if isinstance(f, (property, staticmethod, classmethod)) or not callable(getattr(Tensor, name)): return False
  try:
    both = getattr(Tensor([0.25, 0.75]), name)(*others)
    if not isinstance(both, Tensor) or both.shape != (2,): return False
    return [getattr(Tensor([v]), name)(*others).item() for v in (0.25, 0.75)] == both.tolist()
  except Exception: return False

UNARY = [n for n in dir(Tensor) if maps_elements(n)]
BINARY = [n for n in dir(Tensor) if n not in UNARY and maps_elements(n, (Tensor([0.5]),))]

def test_the_functions_are_found():
  assert {"exp", "log", "cos", "tan", "sigmoid", "gelu", "erf", "floor", "rsqrt"} <= set(UNARY)
  assert {"div", "mod", "fmod", "maximum", "copysign"} <= set(BINARY)

def check(dtype, of_numbers, of_buffers, at):
  got, want = bits(Tensor.cat(*of_numbers)), bits(of_buffers)
  assert got.shape == want.shape
  a, b = got.view(np.float64), want.view(np.float64)
  wrong = [f"{at[i]}: {a[i]!r}, buffer {b[i]!r}" for i in np.nonzero(got != want)[0]]
  assert not wrong, f"{dtype}: {'; '.join(wrong[:6])}"

@pytest.mark.parametrize("name", UNARY)
def test_of_one(name):
  for dtype in DTYPES:
    numbers = [getattr(Tensor.full((1,), v, dtype=dtype), name)() for v in VALUES]
    check(dtype, numbers, getattr(Tensor(VALUES, dtype=dtype).realize(), name)(), VALUES)

@pytest.mark.parametrize("name", BINARY)
def test_of_two(name):
  at = [(v, w) for v in VALUES[::2] + [NAN, INF] for w in VALUES]
  for dtype in DTYPES:
    numbers = [getattr(Tensor.full((1,), v, dtype=dtype), name)(Tensor.full((1,), w, dtype=dtype)) for v, w in at]
    x, y = (Tensor([p[i] for p in at], dtype=dtype).realize() for i in (0, 1))
    buffers = getattr(x, name)(y)
    if name in ("maximum", "minimum"):  # of 0 and -0 either
      numbers, buffers = [n + 0.0 for n in numbers], buffers.contiguous() + 0.0
    check(dtype, numbers, buffers, at)

def power(x, e):
  """C's pow."""
  try: return math.pow(x, e)
  except OverflowError: return -INF if x < 0 and e % 2 == 1 else INF
  except ValueError: return NAN if x else math.copysign(INF, x) if e % 2 == 1 else INF

@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_by_a_number(exponent):
  """Products and roots round more often than a power: signs, zeros, infinities and NaN are the same."""
  x = Tensor(VALUES).realize()
  got, want = (x ** exponent).numpy(), (x ** Tensor([exponent]).realize()).numpy()
  for v, a, b in zip(VALUES, got, want):
    with np.errstate(over="ignore"): oracle = np.float32(power(float(np.float32(v)), float(np.float32(exponent))))
    for r in (a, b):
      assert np.isnan(r) if np.isnan(oracle) else np.signbit(r) == np.signbit(oracle), (v, exponent, r, oracle)
      if np.isnan(oracle): continue
      np.testing.assert_allclose(r, oracle, rtol=1e-6, atol=2e-45, err_msg=f"{v} ** {exponent}")
