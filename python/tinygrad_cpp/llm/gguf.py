"""GGUF files: metadata and tensors. Packed blocks stay packed in memory: kernels that use their values unpack them."""
from __future__ import annotations
import enum, os, pathlib
from typing import Any
from .. import _core
from ..device import Device
from ..tensor import Tensor

# Types of tensors by name: elements and bytes of a block are the second and third item.
GGMLQuantizationType = enum.IntEnum("GGMLQuantizationType", {name: number for number, name, _, _ in _core.ggml_types()})
GGML_QUANT_SIZES = {GGMLQuantizationType(number): (elements, size) for number, _, elements, size in _core.ggml_types()}


class GGUFValueType(enum.IntEnum):
  """Types of metadata."""
  UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
  """n elements of a ggml type from the bytes that start with them: native types in their own dtype, others as
  float32."""
  return _core.ggml_data_to_tensor(t, n, int(ggml_type))


def ggml_quantize(t: Tensor, ggml_type: int) -> Tensor:
  """The blocks of a tensor's rows, bytes of shape (..., bytes of a row)."""
  return _core.ggml_quantize(t, int(ggml_type))


def gguf_load(fn: Tensor | str | pathlib.Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
  """Key-value pairs and tensors of a GGUF file of version 2 or 3, or of a model in several files when `fn` is the path
  of the first. FormatError (a ValueError) that names the offset and the field for a file that is not as specified."""
  if isinstance(fn, Tensor): return _core.gguf_parse(fn)
  return _core.gguf_load(os.fspath(fn), Device.DEFAULT)


def _type_of(key: str, value: Any) -> GGUFValueType:
  if isinstance(value, (list, tuple)):
    kinds = {_type_of(key, v) for v in value}
    if len(kinds) <= 1: return kinds.pop() if kinds else GGUFValueType.INT32
    if kinds <= {GGUFValueType.INT32, GGUFValueType.INT64, GGUFValueType.UINT64}:
      return GGUFValueType.UINT64 if min(value) >= 0 else GGUFValueType.INT64
    if GGUFValueType.STRING not in kinds and GGUFValueType.BOOL not in kinds: return GGUFValueType.FLOAT32
  elif isinstance(value, bool): return GGUFValueType.BOOL
  elif isinstance(value, str): return GGUFValueType.STRING
  elif isinstance(value, float): return GGUFValueType.FLOAT32
  elif isinstance(value, int):
    if -2**31 <= value < 2**31: return GGUFValueType.INT32
    return GGUFValueType.INT64 if value < 2**63 else GGUFValueType.UINT64
  raise ValueError(f"[gguf_save] got {value!r} for {key}, expected numbers, strings or a list of one kind of them")


def gguf_save(tensors: dict[str, Tensor], fn: str | pathlib.Path, metadata: dict[str, Any] | None = None,
              types: dict[str, int | str] | int | str | None = None, alignment: int = 32) -> None:
  """Writes a GGUF file; an old one is replaced when the new one is complete.
  types: one for all tensors, or one for each of some names, as a GGMLQuantizationType or its name ("Q8_0"); others are
  written in their dtype. Bytes (uint8) with a
  type are blocks that are packed already, as ggml_quantize gives them.
  metadata: bool, int, float, str or lists of them; (GGUFValueType, value) says the type, which else is INT32 or the
  one that holds the integer, FLOAT32, BOOL or STRING."""
  pairs = []
  for key, value in (metadata or {}).items():
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], GGUFValueType): kind, value = value
    else: kind = _type_of(key, value)
    pairs.append((key, int(kind), value))
  def type_of(name: str) -> int | None:
    kind = types.get(name) if isinstance(types, dict) else types
    if isinstance(kind, str) and kind not in GGMLQuantizationType.__members__:
      raise ValueError(f"[gguf_save] got type {kind!r} for {name}, expected one of "
                       f"{', '.join(GGMLQuantizationType.__members__)}")
    return int(GGMLQuantizationType[kind]) if isinstance(kind, str) else None if kind is None else int(kind)
  _core.gguf_save(os.fspath(fn), [(k, t, type_of(k)) for k, t in tensors.items()], pairs, alignment)
