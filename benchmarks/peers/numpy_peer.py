"""NumPy, into given arrays. Only its products use threads."""
import ctypes, math, pathlib
import numpy as np
import inputs
from worker import Work


def _gelu(x: np.ndarray, out: np.ndarray) -> None:
  np.multiply(x, x, out=out)
  out *= 0.044715
  out += 1
  out *= x
  out *= math.sqrt(2 / math.pi)
  np.tanh(out, out=out)
  out += 1
  out *= x
  out *= 0.5


def _softmax(x: np.ndarray, out: np.ndarray) -> None:
  np.subtract(x, x.max(-1, keepdims=True), out=out)
  np.exp(out, out=out)
  out /= out.sum(-1, keepdims=True)


def _layernorm(x: np.ndarray, out: np.ndarray) -> None:
  np.subtract(x, x.mean(-1, keepdims=True), out=out)
  out /= np.sqrt(np.einsum("...i,...i->...", out, out)[..., None] / x.shape[-1] + np.float32(1e-5))


def _blas() -> str:
  """The kernels that NumPy's OpenBLAS chose, by the name of the processor they were written for."""
  for path in sorted(pathlib.Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*")):
    name = getattr(ctypes.CDLL(str(path)), "scipy_openblas_get_corename64_", None)
    if name is None: continue
    name.restype = ctypes.c_char_p
    return f"OpenBLAS for {name().decode()}"
  return "its own BLAS"


class Peer:
  def __init__(self, name: str, threads: int): self.version = f"{np.__version__} ({_blas()})"

  def _into(self, shape, run) -> Work:
    out = np.empty(shape, np.float32)
    return Work(lambda: run(out), lambda: [out])

  def matmul(self, row) -> Work:
    a, b = (np.swapaxes(t, -1, -2) if row.args[f"transpose_{n}"] else t for n, t in zip("ab", inputs.operands(row)))
    return self._into(a.shape[:-1] + b.shape[-1:], lambda out: np.matmul(a, b, out=out))

  def gemv(self, row) -> Work:
    a, v = inputs.operands(row)
    return self._into(a.shape[:1], lambda out: np.matmul(a, v, out=out))

  def add_mul(self, row) -> Work:
    a, b, c = inputs.operands(row)
    def run(out):
      np.multiply(a, b, out=out)
      np.add(out, c, out=out)
    return self._into(a.shape, run)

  def _map(self, row, f) -> Work:
    x, = inputs.operands(row)
    return self._into(x.shape, lambda out: f(x, out))
  def exp(self, row) -> Work: return self._map(row, lambda x, out: np.exp(x, out=out))
  def sin(self, row) -> Work: return self._map(row, lambda x, out: np.sin(x, out=out))
  def gelu(self, row) -> Work: return self._map(row, _gelu)
  def softmax(self, row) -> Work: return self._map(row, _softmax)
  def layernorm(self, row) -> Work: return self._map(row, _layernorm)

  def _reduce(self, row) -> Work:
    x, = inputs.operands(row)
    f, axis = getattr(np, row.kind), row.args["axis"]
    return self._into(() if axis is None else (x.shape[0],), lambda out: f(x, axis=axis, out=out))
  sum = max = mean = _reduce

  def attention(self, row) -> Work:
    q, k, v = inputs.operands(row)
    hidden = np.triu(np.full(q.shape[2:3] * 2, -np.inf, np.float32), 1)
    scores = np.empty(q.shape[:3] + q.shape[2:3], np.float32)
    def run(out):
      np.matmul(q, np.swapaxes(k, -1, -2), out=scores)
      np.multiply(scores, np.float32(q.shape[-1] ** -0.5), out=scores)
      np.add(scores, hidden, out=scores)
      _softmax(scores, scores)
      np.matmul(scores, v, out=out)
    return self._into(q.shape, run)

  def embedding(self, row) -> Work:
    table, words = inputs.operands(row)
    return self._into(words.shape + table.shape[1:], lambda out: np.take(table, words, axis=0, out=out, mode="clip"))

  def gpt2(self, row) -> Work:
    x, p = inputs.operands(row)[0], inputs.gpt2_values()
    hidden = np.triu(np.full(x.shape[1:2] * 2, -np.inf, np.float32), 1)
    def norm(t):
      out = np.empty_like(t)
      _layernorm(t, out)
      return out
    def run(out):
      qkv = (norm(x) * p[0] + p[1]) @ p[2].T + p[3]
      q, k, v = (t.reshape(x.shape[0], x.shape[1], inputs.HEADS, -1).transpose(0, 2, 1, 3)
                 for t in np.split(qkv, 3, -1))
      scores = q @ np.swapaxes(k, -1, -2) * np.float32(q.shape[-1] ** -0.5) + hidden
      _softmax(scores, scores)
      y = x + (scores @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ p[4].T + p[5]
      h = (norm(y) * p[6] + p[7]) @ p[8].T + p[9]
      g = np.empty_like(h)
      _gelu(h, g)
      np.add(y, g @ p[10].T + p[11], out=out)
    return self._into(x.shape, run)
