"""GGUF files: key-value pairs and tensors, whose quantised blocks are unpacked by tensor operations when they are
used."""
from __future__ import annotations
import pathlib, struct
from typing import Any
from .. import _core
from ..dtype import dtypes
from ..helpers import prod, round_up
from ..nn.state import _on_host, accept_filename
from ..tensor import Tensor

_NATIVE = {0: dtypes.float32, 1: dtypes.float16, 24: dtypes.int8, 25: dtypes.int16, 26: dtypes.int32, 27: dtypes.int64,
           28: dtypes.float64,
           30: dtypes.bfloat16}


def _half(blocks: Tensor, at: int) -> Tensor: return blocks[:, at:at + 2].bitcast(dtypes.float16).float()
def _nibbles(q: Tensor) -> Tensor:
  """Low halves of bytes (..., n), then high ones: (..., 2n)."""
  return Tensor.cat(q.bitwise_and(15), q.rshift(4), dim=-1)
def _bits(q: Tensor, count: int, width: int = 1) -> Tensor:
  """Fields of `width` bits of bytes (..., n), lowest first: (..., 8 / width, n) cut to `count` fields."""
  return Tensor.stack(*[q.rshift(i * width).bitwise_and((1 << width) - 1) for i in range(count)], dim=-2)

def _q4_0(b: Tensor) -> Tensor: return (_nibbles(b[:, 2:18]).float() - 8) * _half(b, 0)
def _q4_1(b: Tensor) -> Tensor: return _nibbles(b[:, 4:20]).float() * _half(b, 0) + _half(b, 2)
def _q5(b: Tensor, at: int) -> Tensor:
  # one bit for each of 32
  fifth = b[:, at:at + 4].unsqueeze(-1).rshift(Tensor.arange(8).cast(dtypes.uint8)).bitwise_and(1).flatten(1)
  return (_nibbles(b[:, at + 4:at + 20]) + fifth * 16).float()
def _q5_0(b: Tensor) -> Tensor: return (_q5(b, 2) - 16) * _half(b, 0)
def _q5_1(b: Tensor) -> Tensor: return _q5(b, 4) * _half(b, 0) + _half(b, 2)
def _q8_0(b: Tensor) -> Tensor: return b[:, 2:34].bitcast(dtypes.int8).float() * _half(b, 0)

def _scales(b: Tensor) -> tuple[Tensor, Tensor]:
  """Scales and offsets of eight parts of a block, six bits each: (blocks, 8, 1)."""
  a, m, rest = b[:, 4:8], b[:, 8:12], b[:, 12:16]
  scale = Tensor.cat(a.bitwise_and(63), rest.bitwise_and(15) + a.rshift(6) * 16, dim=1)
  offset = Tensor.cat(m.bitwise_and(63), rest.rshift(4) + m.rshift(6) * 16, dim=1)
  return (scale.float() * _half(b, 0)).unsqueeze(-1), (offset.float() * _half(b, 2)).unsqueeze(-1)
def _q4_k(b: Tensor) -> Tensor:
  scale, offset = _scales(b)
  return (_nibbles(b[:, 16:144].reshape(-1, 4, 32)).reshape(-1, 8, 32).float() * scale - offset).flatten(1)
def _q5_k(b: Tensor) -> Tensor:
  scale, offset = _scales(b)
  q = _nibbles(b[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32) + _bits(b[:, 16:48], 8) * 16
  return (q.float() * scale - offset).flatten(1)
def _q6_k(b: Tensor) -> Tensor:
  low = b[:, :128].reshape(-1, 2, 64)
  q = _nibbles(low).reshape(-1, 2, 4, 32) + _bits(b[:, 128:192].reshape(-1, 2, 32), 4, 2) * 16
  scale = b[:, 192:208].bitcast(dtypes.int8).float() * _half(b, 208)
  return ((q.float() - 32).reshape(-1, 16, 16) * scale.unsqueeze(-1)).flatten(1)
def _mxfp4(b: Tensor) -> Tensor:
  q = _nibbles(b[:, 1:17])
  exponent, mantissa = q.rshift(1).bitwise_and(3).float(), q.bitwise_and(1).float()
  size = (exponent == 0).where(mantissa * 0.5, (exponent - 1).exp2() * (1 + mantissa * 0.5))
  return (q.bitwise_and(8) != 0).where(-size, size) * (b[:, 0:1].float() - 127).exp2()

# elements and bytes of a block, and how it is unpacked
_BLOCKS = {2: (32, 18, _q4_0), 3: (32, 20, _q4_1), 6: (32, 22, _q5_0), 7: (32, 24, _q5_1), 8: (32, 34, _q8_0),
           12: (256, 144, _q4_k),
           13: (256, 176, _q5_k), 14: (256, 210, _q6_k), 39: (32, 17, _mxfp4)}


def _size(n: int, ggml_type: int) -> int:
  """Bytes of n elements."""
  if ggml_type in _NATIVE: return n * _NATIVE[ggml_type].itemsize
  if ggml_type not in _BLOCKS:
    raise ValueError(f"[gguf] got the type {ggml_type} of tensors, expected one of {sorted([*_NATIVE, *_BLOCKS])}")
  elements, size, _ = _BLOCKS[ggml_type]
  if n % elements: raise _core.FormatError(f"[gguf] got {n} elements in blocks of {elements}")
  return n // elements * size


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
  """n elements of a ggml type from the bytes that start with them."""
  raw = t[:_size(n, ggml_type)]
  if ggml_type in _NATIVE: return raw.bitcast(_NATIVE[ggml_type])
  _, size, unpack = _BLOCKS[ggml_type]
  return unpack(raw.reshape(-1, size)).flatten()


class _Reader:
  """Numbers and strings of a header; whatever lies beyond the end is a FormatError."""
  def __init__(self, data: memoryview): self.data, self.at = data, 0
  def take(self, n: int) -> memoryview:
    if n > len(self.data) - self.at:
      raise _core.FormatError(f"[gguf] the header ends after {len(self.data)} bytes, expected {n} more at {self.at}")
    self.at += n
    return self.data[self.at - n:self.at]
  def number(self, code: str) -> Any: return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
  def string(self) -> str: return bytes(self.take(self.number("Q"))).decode("utf-8", "replace")
  def value(self, kind: int, depth: int = 0) -> Any:
    if kind == 8: return self.string()
    if kind == 9 and depth < 4:
      inner, count = self.number("I"), self.number("Q")
      if count > len(self.data) - self.at: raise _core.FormatError(f"[gguf] got a list of {count} elements")
      return [self.value(inner, depth + 1) for _ in range(count)]
    if kind > 12 or kind == 9: raise _core.FormatError(f"[gguf] got the type {kind} of values, expected at most 12")
    return self.number({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
                        12: "d"}[kind])


@accept_filename
def gguf_load(t: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
  """Key-value pairs and tensors of a GGUF file of version 2 or 3."""
  t = _on_host(t)
  r = _Reader(memoryview(t).cast("B"))
  if bytes(r.take(4)) != b"GGUF": raise _core.FormatError("[gguf] got a file that does not begin with GGUF")
  if (version := r.number("I")) not in (2, 3): raise _core.FormatError(f"[gguf] got version {version}, expected 2 or 3")
  tensors, pairs = r.number("Q"), r.number("Q")
  if max(tensors, pairs) > len(r.data):
    raise _core.FormatError(f"[gguf] got {tensors} tensors and {pairs} pairs in {len(r.data)} bytes")
  kv = {}
  for _ in range(pairs):
    key = r.string()
    kv[key] = r.value(r.number("I"))
  infos = []
  for _ in range(tensors):
    name, axes = r.string(), r.number("I")
    if axes > 8: raise _core.FormatError(f"[gguf] got {axes} axes of {name}")
    shape = tuple(r.number("Q") for _ in range(axes))[::-1]
    infos.append((name, shape, r.number("I"), r.number("Q")))
  alignment = kv.get("general.alignment", 32)
  if not isinstance(alignment, int) or alignment <= 0:
    raise _core.FormatError(f"[gguf] got an alignment of {alignment!r}")
  start, state = round_up(r.at, alignment), {}
  for name, shape, kind, at in infos:
    n = prod(shape)
    if start + at + _size(n, kind) > len(r.data):
      raise _core.FormatError(f"[gguf] got {name} of shape {shape} beyond the end of the file")
    state[name] = ggml_data_to_tensor(t[start + at:start + at + _size(n, kind)], n, kind).reshape(shape)
  return kv, state
