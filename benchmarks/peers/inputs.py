"""Inputs of the rows, the same numbers as `tg bench` uses, and checks of results against NumPy in float64. A result
that is wrong is never timed."""
import gzip, math, pathlib, sys
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from rows import MNIST_LOSSES, RESNET_LOSSES, SIDE, Row, bound, gpt2_parameters

ATTENTION = (1, 12, 1024, 64)
HEADS = 12


class WrongResult(Exception): pass


def _mixed(n: int, seed: int) -> np.ndarray:
  """n words of 64 well mixed bits (the finalizer of MurmurHash3)."""
  with np.errstate(over="ignore"):
    x = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2 ** 64)
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
      x ^= x >> np.uint64(33)
      x *= np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def floats(shape: tuple[int, ...], seed: int, scale: float = 1) -> np.ndarray:
  """float32, uniform in [-scale, scale)."""
  v = (_mixed(math.prod(shape), seed) >> np.uint64(40)).astype(np.float32) * np.float32(2 ** -23) - np.float32(1)
  return (v if scale == 1 else v * np.float32(scale)).reshape(shape)


def blocks(size: int, seed: int = 1) -> np.ndarray:
  """Quantized blocks of a (4096, 4096) matrix: uint8 (4096, 128, size)."""
  out = (_mixed(SIDE * SIDE // 32 * size, seed) >> np.uint64(56)).astype(np.uint8).reshape(SIDE, SIDE // 32, size)
  out[..., 1] = out[..., 1] & 3 | 0x28
  return out


def dequantized(raw: np.ndarray) -> np.ndarray:
  scale = raw[..., :2].copy().view(np.float16).astype(np.float64)
  body = raw[..., 2:]
  q = np.concatenate((body & 15, body >> 4),
                     -1).astype(np.float64) - 8 if body.shape[-1] == 16 else body.view(np.int8).astype(np.float64)
  return (q * scale).reshape(SIDE, SIDE)


def operands(row: Row) -> list[np.ndarray]:
  """The arrays a row works on."""
  a = row.args
  if row.kind == "matmul":
    def stored(rows: int, columns: int, transposed: bool) -> tuple[int, ...]:
      return ((a["batch"],) if a["batch"] else ()) + ((columns, rows) if transposed else (rows, columns))
    return [floats(stored(a["m"], a["k"], a["transpose_a"]), 1), floats(stored(a["k"], a["n"], a["transpose_b"]), 2)]
  if row.kind == "matmul_narrow":  # numbers of the type, as float32
    x = [floats((a["n"], a["n"]), seed) for seed in (1, 2)]
    narrow = {"int8": lambda v: np.trunc(v * 40), "float16": lambda v: v.astype(np.float16).astype(np.float32),
              "bfloat16": lambda v: (v.view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)}[a["type"]]
    return [narrow(v) for v in x]
  if row.kind == "gemv": return [floats((SIDE, SIDE), 1), floats((SIDE,), 2)]
  if row.kind == "gemv_quantized": return [blocks(a["block"]), floats((SIDE,), 2)]
  if row.kind in ("conv", "conv_backward"):
    return [floats(a["x"], 1), floats(a["weight"], 2), floats(a["y"], 3)][:3 if row.kind == "conv_backward" else 2]
  if row.kind in ("copy", "add_mul", "exp", "gelu", "sin"):
    return [floats((a["count"],), i + 1, a["scale"]) for i in range(a["inputs"])]
  if row.kind in ("sum", "max", "mean"):
    side = a.get("side", SIDE)
    return [floats((side * side,) if a["axis"] is None else (side, side), 1)]
  if row.kind in ("softmax", "layernorm"): return [floats(a["shape"], 1, 4 if row.kind == "softmax" else 1)]
  if row.kind == "attention": return [floats(ATTENTION, 1, 4), floats(ATTENTION, 2), floats(ATTENTION, 3)]
  # the input and the gradient of the output
  if row.kind in ("gpt2", "gpt2_train"): return [floats((1, a["time"], 768), seed) for seed in (7, 9)]
  if row.kind == "groupnorm": return [floats(a["shape"], 1)]
  if row.kind == "embedding":
    return [floats(a["table"], 1),
            (np.arange(math.prod(a["shape"]), dtype=np.int64) * 7919 % a["table"][0]).reshape(a["shape"])]
  if row.kind == "lstm":
    n = a["size"]
    return [floats((a["time"], a["batch"], n), 1), floats((4 * n, n), 2, 1 / 16), floats((4 * n, n), 3, 1 / 16)]
  if row.kind == "vit": return [floats((a["batch"], a["time"], 768), 7)]
  if row.kind == "resnet_step": return [floats((8, 3, 224, 224), 5)]
  raise ValueError(f"no operands of {row.kind}")


def layer_values(shapes: list[tuple[str, tuple[int, ...]]]) -> list[np.ndarray]:
  """Values for parameters in this order: weights of layers random, those of norms one, biases zero."""
  values, seed = [], 1
  for name, shape in shapes:
    if len(shape) > 1:
      values.append(floats(shape, seed, bound(shape)))
      seed += 1
    else: values.append(np.full(shape, 0 if name.endswith("bias") else 1, np.float32))
  return values


def gpt2_values() -> list[np.ndarray]: return layer_values(gpt2_parameters())


def mnist() -> tuple[np.ndarray, np.ndarray]:
  """Training images, uint8 (60000, 1, 28, 28), and labels."""
  folder = pathlib.Path(__file__).resolve().parents[2] / "data" / "mnist"
  def read(name: str, header: int) -> np.ndarray:
    with gzip.open(folder / name) as f: return np.frombuffer(f.read(), np.uint8)[header:].copy()
  return read("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28), read("train-labels-idx1-ubyte.gz", 8)


# ---- float64 ----

def conv64(x: np.ndarray, weight: np.ndarray, row: Row) -> np.ndarray:
  stride, padding, groups, apart = (row.args[name] for name in ("stride", "padding", "groups", "dilation"))
  _, _, h, w = row.args["y"]
  x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
  y = np.zeros(row.args["y"])
  for i in range(weight.shape[2]):
    for j in range(weight.shape[3]):
      seen, tap = x[:, :, i * apart:i * apart + stride * (h - 1) + 1:stride,
                    j * apart:j * apart + stride * (w - 1) + 1:stride], weight[:, :, i, j].astype(np.float64)
      y += seen * tap.reshape(1, -1, 1, 1) if groups > 1 else np.tensordot(seen, tap, (1, 1)).transpose(0, 3, 1, 2)
  return y


def attention64(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = True) -> np.ndarray:
  out, open_ = np.empty_like(v), np.tri(q.shape[-2], k=0 if causal else k.shape[-2], dtype=bool)
  for i in np.ndindex(q.shape[:-2]):  # one head's scores at a time
    scores = np.where(open_, q[i] @ k[i].T / math.sqrt(q.shape[-1]), -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    out[i] = p / p.sum(-1, keepdims=True) @ v[i]
  return out


def gelu64(x: np.ndarray) -> np.ndarray:
  return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
def layernorm64(x: np.ndarray) -> np.ndarray:
  return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def lstm64(x: np.ndarray, wi: np.ndarray, wh: np.ndarray) -> np.ndarray:
  """One layer from zeros, without biases; gates in PyTorch's order: input, forget, cell, output."""
  def sigmoid(v): return 1 / (1 + np.exp(-v))
  h = c = np.zeros((x.shape[1], wh.shape[1]))
  out = []
  for step in x:
    i, f, g, o = np.split(step @ wi.T + h @ wh.T, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    out.append(h)
  return np.stack(out)


def block64(x: np.ndarray, p: list[np.ndarray], causal: bool = True) -> np.ndarray:
  """A GPT-2 block; parameters in the order of gpt2_parameters()."""
  ln1, ln1_bias, attn, attn_bias, proj, proj_bias, ln2, ln2_bias, fc, fc_bias, out, out_bias = p
  batch, time, channels = x.shape
  qkv = np.split((layernorm64(x) * ln1 + ln1_bias) @ attn.T + attn_bias, 3, -1)
  heads = [t.reshape(batch, time, HEADS, channels // HEADS).transpose(0, 2, 1, 3) for t in qkv]
  y = x + attention64(*heads, causal).transpose(0, 2, 1, 3).reshape(batch, time, channels) @ proj.T + proj_bias
  return y + gelu64((layernorm64(y) * ln2 + ln2_bias) @ fc.T + fc_bias) @ out.T + out_bias


# ---- checks ----

def _close(got: np.ndarray, expected: np.ndarray, scale: np.ndarray | float, tolerance: float) -> None:
  if got.shape != expected.shape: raise WrongResult(f"got shape {got.shape}, expected {expected.shape}")
  error = np.abs(got.astype(np.float64) - expected) / scale
  if not np.max(error) <= tolerance:
    raise WrongResult(f"element {np.unravel_index(np.argmax(error), error.shape)} is off by {np.max(error):.3g} of "
                      f"its scale")


def _slope(gradients: list[np.ndarray], directions: list[np.ndarray], expected: float, tolerance: float) -> None:
  """The slope along random directions that gradients give. Its terms have random signs, so its scale is the root of the
  sum of their squares."""
  terms = [g.astype(np.float64) * d for g, d in zip(gradients, directions, strict=True)]
  got, scale = sum(float(t.sum()) for t in terms), math.sqrt(sum(float((t * t).sum()) for t in terms))
  if not abs(got - expected) <= tolerance * scale:
    raise WrongResult(f"gradients give a slope of {got:.6g}, expected {expected:.6g}")


def _steps(got: list[np.ndarray], losses: tuple[float, ...], tolerance: float) -> None:
  values = [float(v) for v in got]
  if len(values) < len(losses): raise WrongResult(f"got {len(values)} losses")
  if tolerance and any(abs(v / l - 1) > tolerance for v, l in zip(values, losses)):
    raise WrongResult(f"losses are {values}, expected {losses}")
  if not (abs(values[0] - losses[0]) < 0.5 * losses[0] and values[len(losses) - 1] < values[0]):
    raise WrongResult(f"losses are {values}: it does not learn")


def _check_matmul(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  a, b = (np.swapaxes(t, -1, -2) if row.args[f"transpose_{n}"] else t for n, t in zip("ab", x))
  rows = np.unique(np.linspace(0, row.args["m"] - 1, 33).astype(int))
  a, b = a[..., rows, :].astype(np.float64), b.astype(np.float64)
  _close(got[0][..., rows, :], a @ b, np.abs(a) @ np.abs(b), 1e-3 if row.args["tf32"] else 4e-6)


def _check_matmul_narrow(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  a, b = x[0][::31].astype(np.float64), (x[1].T if row.args["transpose_b"] else x[1]).astype(np.float64)
  _close(got[0][::31].astype(np.float64), a @ b, np.abs(a) @ np.abs(b),
         {"int8": 0, "float16": 6e-4, "bfloat16": 5e-3}[row.args["type"]])


def _check_gemv(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  a, v = dequantized(x[0]) if row.kind == "gemv_quantized" else x[0].astype(np.float64), x[1].astype(np.float64)
  # llama.cpp rounds the vector to 8 bits.
  _close(got[0].reshape(-1), a @ v, np.abs(a) @ np.abs(v), 2e-3 if row.kind == "gemv_quantized" else 4e-6)


def _check_conv(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  expected = conv64(x[0], x[1], row)
  _close(got[0], expected, math.sqrt(float(np.mean(expected ** 2))), 1e-4)


def _check_conv_backward(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  directions = [floats(t.shape, 11 + i).astype(np.float64) for i, t in enumerate(x[:2])]
  y = conv64(directions[0], x[1], row) + conv64(x[0], directions[1], row)
  _slope(got, directions, float((y * x[2]).sum()), 1e-3)


def _check_map(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  v = [t[::1021].astype(np.float64) for t in x]
  expected = {"copy": lambda: v[0], "add_mul": lambda: v[0] * v[1] + v[2], "exp": lambda: np.exp(v[0]),
              "gelu": lambda: gelu64(v[0]), "sin": lambda: np.sin(v[0])}[row.kind]()
  _close(got[0][::1021], expected, np.maximum(np.abs(expected), 1e-30) if row.kind == "exp" else 1 + np.abs(expected),
         5e-6)


def _check_reduction(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  v = x[0].astype(np.float64)
  expected, scale = getattr(np, row.kind)(v,
                                          axis=row.args["axis"]), (np.max if row.kind == "max"
                                                                   else getattr(np, row.kind))(np.abs(v),
                                                                       axis=row.args["axis"])
  _close(got[0].reshape(np.shape(expected)), expected, scale, 1e-5)


def _check_rows(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  v = x[0][::127].astype(np.float64)
  if row.kind == "layernorm": return _close(got[0][::127], layernorm64(v), 1, 2e-5)
  e = np.exp(v - v.max(-1, keepdims=True))
  expected = e / e.sum(-1, keepdims=True)
  _close(got[0][::127], expected, expected, 2e-5)


def _check_attention(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  _close(got[0][:, ::11], attention64(*(t[:, ::11].astype(np.float64) for t in x)), 1, 2e-5)


def _check_gpt2(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  expected = block64(x[0].astype(np.float64), [v.astype(np.float64) for v in gpt2_values()])
  _close(got[0], expected, 1 + np.abs(expected), 2e-5)


def _check_gpt2_train(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  values = [v.astype(np.float64) for v in gpt2_values()]
  directions = [floats(v.shape, 21 + i, bound(v.shape) if v.ndim > 1 else 0.05).astype(np.float64) for i,
                v in enumerate(values)]
  step, ends = 1e-3, []
  for sign in (1, -1):
    ends.append(float((block64(x[0].astype(np.float64),
                               [v + sign * step * d for v, d in zip(values, directions)]) * x[1]).sum()))
  _slope(got, directions, (ends[0] - ends[1]) / (2 * step), 5e-3)


def _check_groupnorm(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  v = x[0].astype(np.float64)
  _close(got[0], layernorm64(v.reshape(v.shape[0], row.args["groups"], -1)).reshape(v.shape), 1, 2e-5)


def _check_embedding(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  _close(got[0], x[0][x[1]].astype(np.float64), 1, 0)


def _check_lstm(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  expected = lstm64(*(t.astype(np.float64) for t in x))
  _close(got[0].reshape(expected.shape), expected, 1, 2e-5)


def _check_vit(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  expected = block64(x[0].astype(np.float64), [v.astype(np.float64) for v in gpt2_values()], causal=False)
  _close(got[0], expected, 1 + np.abs(expected), 2e-5)


def _check_zoo(row: Row, x: list[np.ndarray], got: list[np.ndarray]) -> None:
  """Weights are random: a network that has overflowed, or computes nothing, would be timed all the same."""
  for i, v in enumerate(got):
    if not np.isfinite(v).all() or not v.any(): raise WrongResult(f"result {i} is zero or not finite")


_CHECKS = {"zoo": _check_zoo, "groupnorm": _check_groupnorm, "embedding": _check_embedding, "lstm": _check_lstm,
           "vit": _check_vit, "matmul": _check_matmul, "matmul_narrow": _check_matmul_narrow, "gemv": _check_gemv,
           "gemv_quantized": _check_gemv, "conv": _check_conv, "conv_backward": _check_conv_backward,
           "copy": _check_map, "add_mul": _check_map, "exp": _check_map, "gelu": _check_map, "sin": _check_map,
           "sum": _check_reduction,
           "max": _check_reduction, "mean": _check_reduction,
           "softmax": _check_rows, "layernorm": _check_rows, "attention": _check_attention, "gpt2": _check_gpt2,
           "gpt2_train": _check_gpt2_train,
           "mnist_step": lambda row, x, got: _steps(got, MNIST_LOSSES, 0),
           "resnet_step": lambda row, x, got: _steps(got, RESNET_LOSSES, 5e-3)}


def check(row: Row, got: list[np.ndarray]) -> None:
  """WrongResult unless the results of a row are right. Of training steps: the losses of the first three."""
  _CHECKS[row.kind](row, [] if row.kind in ("mnist_step", "resnet_step", "zoo") else operands(row),
                    [np.asarray(v) for v in got])
