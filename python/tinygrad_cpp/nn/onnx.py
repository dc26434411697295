"""ONNX models: OnnxRunner makes a function of tensors of a file. See docs/onnx.md."""
from __future__ import annotations
import enum, io, os, pathlib
from dataclasses import dataclass
from typing import Any, NamedTuple
from .. import _core
from ..dtype import DType, dtypes
from ..helpers import getenv
from ..tensor import Tensor


class OnnxDataType(enum.IntEnum):
  """Element types by their numbers in files."""
  FLOAT = 1; UINT8 = 2; INT8 = 3; UINT16 = 4; INT16 = 5; INT32 = 6; INT64 = 7; BOOL = 9  # noqa: E702
  FLOAT16 = 10; DOUBLE = 11; UINT32 = 12; UINT64 = 13; BFLOAT16 = 16  # noqa: E702
  def to_dtype(self) -> DType: return _DTYPES[self.value]


_DTYPES: dict[int, DType] = {
  1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16, 6: dtypes.int32,
  7: dtypes.int64, 9: dtypes.bool, 10: dtypes.float16, 11: dtypes.float64, 12: dtypes.uint32, 13: dtypes.uint64,
  16: dtypes.bfloat16, 17: dtypes.fp8e4m3, 18: dtypes.fp8e4m3fnuz, 19: dtypes.fp8e5m2, 20: dtypes.fp8e5m2fnuz,
  21: dtypes.uint8, 22: dtypes.int8, 23: dtypes.float32, 24: dtypes.float32, 25: dtypes.uint8, 26: dtypes.int8}

# Types that NumPy has from ml_dtypes alone: the type of tensors, and the one whose bits they are (None: the values).
_ML_DTYPES: dict[str, tuple[str, DType, str | None]] = {
  "BFLOAT16": ("bfloat16", dtypes.bfloat16, "uint16"),
  "FLOAT8E4M3FN": ("float8_e4m3fn", dtypes.fp8e4m3, "uint8"),
  "FLOAT8E4M3FNUZ": ("float8_e4m3fnuz", dtypes.fp8e4m3fnuz, "uint8"),
  "FLOAT8E5M2": ("float8_e5m2", dtypes.fp8e5m2, "uint8"),
  "FLOAT8E5M2FNUZ": ("float8_e5m2fnuz", dtypes.fp8e5m2fnuz, "uint8"),
  "UINT4": ("uint4", dtypes.uint8, None), "INT4": ("int4", dtypes.int8, None),
  "UINT2": ("uint2", dtypes.uint8, None), "INT2": ("int2", dtypes.int8, None),
  "FLOAT4E2M1": ("float4_e2m1fn", dtypes.float32, None), "FLOAT8E8M0": ("float8_e8m0fnu", dtypes.float32, None)}


@dataclass(frozen=True)
class OnnxValue:
  """What a file says of an input. Sizes are numbers or names; a shape of None has any number of axes."""
  shape: tuple[str | int, ...] | None
  dtype: DType | None  # None: texts
  is_optional: bool
  is_sequence: bool


class Domain(str, enum.Enum):
  """Whose operators: the names of domains in files, but for the default one, which files may leave out."""
  ONNX = "ai.onnx"; ONNX_ML = "ai.onnx.ml"  # noqa: E702
  AI_ONNX_PREVIEW = "ai.onnx.preview"
  AI_ONNX_TRAINING = "ai.onnx.training"
  AI_ONNX_PREVIEW_TRAINING = "ai.onnx.preview.training"
  MICROSOFT_CONTRIB_OPS = "com.microsoft"
  MICROSOFT_NCHWC = "com.microsoft.nchwc"
  MICROSOFT_EXPERIMENTAL = "com.microsoft.experimental"
  PYTORCH_ATEN = "org.pytorch.aten"
  @classmethod
  def from_onnx(cls, domain: str | None) -> Domain | str:
    """The domain of a name in a file; the name where it is another one."""
    if not domain: return cls.ONNX
    try: return cls(domain)
    except ValueError: return domain


class OpSetId(NamedTuple):
  domain: Domain | str
  version: int


@dataclass(frozen=True)
class OnnxNode:
  """A node: operator, version of its domain, names of values, attributes."""
  op: str
  opset_id: OpSetId
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  opts: dict[str, Any]


def _is_array(x: object) -> bool:
  return type(x).__module__.partition(".")[0] in ("numpy", "ml_dtypes") and hasattr(x, "dtype")
def _from_proto(x: Any) -> Any:
  """The array of a TensorProto of the package onnx."""
  from onnx import numpy_helper
  return numpy_helper.to_array(x)


def _from_array(a: Any) -> Any:
  """The value of a NumPy array: its memory as a tensor where it can be shared; texts as (shape, list)."""
  import numpy as np
  a = np.asarray(a)
  if a.dtype.kind in "OUS":
    return list(a.shape), [x.decode() if isinstance(x, bytes) else str(x) for x in a.reshape(-1).tolist()]
  for name, dtype, bits in _ML_DTYPES.values():
    if a.dtype.name != name: continue
    if bits is None: return Tensor(a.astype(np.float32)).cast(dtype)
    return Tensor(np.ascontiguousarray(a).view(bits).reshape(a.shape)).bitcast(dtype)
  shares = a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative and a.size > 0 and a.ndim > 0
  if shares: return _core.onnx_tensor_over(a, _from_name(a.dtype.name), a.shape)
  return Tensor(np.ascontiguousarray(a).reshape(a.shape), dtype=_from_name(a.dtype.name))


def _from_name(name: str) -> DType: return getattr(dtypes, name)


def _to_array(t: Tensor, elem: str) -> Any:
  """A result of a type that NumPy lacks as an array of the type ml_dtypes has for it."""
  import ml_dtypes
  name, _, bits = _ML_DTYPES[elem]
  dtype = getattr(ml_dtypes, name)
  return t.bitcast(_from_name(bits)).numpy().view(dtype) if bits is not None else t.numpy().astype(dtype)


def _has_ml_dtypes() -> bool:
  try: import ml_dtypes  # noqa: F401
  except ImportError: return False
  return True


class OnnxRunner:
  """A model of an ONNX file: a path, bytes, a binary stream, or a tensor of bytes. It is called with a dictionary of
  tensors, NumPy arrays, numbers or lists by name and returns one of tensors, which nothing computes yet; sequences are
  lists, maps dictionaries, texts arrays of objects.

  device: where the constants are. dtype: float16 or bfloat16, what float32 values become. trainable: each constant
  stays a tensor of its own, see parameters()."""
  def __init__(self, model_path: Any, device: str | None = None, dtype: DType | None = None, trainable: bool = False):
    options = {"device": device, "dtype": dtype, "trainable": trainable}
    if isinstance(model_path, Tensor):
      where = model_path.device
      folder = os.path.dirname(where[5:]) if isinstance(where, str) and where.startswith("DISK:") else ""
      self._model = _core.OnnxModel.from_tensor(model_path, folder=folder, **options)
    elif isinstance(model_path, (bytes, bytearray, memoryview)):
      self._model = _core.OnnxModel.from_buffer(model_path, **options)
    elif isinstance(model_path, io.IOBase):
      self._model = _core.OnnxModel.from_buffer(model_path.read(), **options)
    else:
      self._model = _core.OnnxModel.from_file(os.fspath(model_path), **options)
    self._device, self._debug = device or "", (False, -1)
    self.graph_inputs = {name: self._spec(*info) for name, info in self._model.inputs().items()}
    self.graph_outputs = tuple(self._model.outputs())

  @staticmethod
  def _spec(shape: Any, elem: int, is_optional: bool, is_sequence: bool) -> OnnxValue:
    return OnnxValue(shape, _DTYPES.get(elem), is_optional, is_sequence)

  @property
  def graph_nodes(self) -> tuple[OnnxNode, ...]:
    """The nodes of the main graph, in order."""
    return tuple(OnnxNode(op, OpSetId(Domain.from_onnx(domain), version), inputs, outputs, opts)
                 for op, domain, version, inputs, outputs, opts in self._model.nodes())

  @property
  def graph_values(self) -> dict[str, Any]:
    """The constants of the main graph by name."""
    return self._model.initializers()

  @property
  def metadata(self) -> dict[str, str]:
    """The texts that the file has about the model."""
    return self._model.metadata()

  def parameters(self) -> dict[str, Tensor]:
    """The weights by name: what gradients of a trainable model belong to."""
    return self._model.parameters()

  def to(self, device: str | None) -> OnnxRunner:
    """Moves the constants, and returns the runner."""
    self._model, self._device = self._model.to(device), device or ""
    return self

  def _given(self, name: str, value: Any) -> Any:
    spec = self.graph_inputs.get(name)
    if value is None or isinstance(value, (Tensor, dict)): return value
    if type(value).__name__ == "TensorProto": value = _from_proto(value)
    if spec is not None and spec.is_sequence and isinstance(value, (list, tuple)):
      return [self._given("", v) for v in value]
    if _is_array(value): return _from_array(value)
    if spec is not None and spec.dtype is None or isinstance(value, str):
      import numpy as np
      return _from_array(np.asarray(value, dtype=object))
    return Tensor(value, dtype=spec.dtype if spec is not None else None)

  def _result(self, value: Any, arrays: bool) -> Any:
    if isinstance(value, list): return [self._result(v, arrays) for v in value]
    if value is None or isinstance(value, dict): return value
    first, second = value
    if isinstance(first, Tensor):
      return _to_array(first, second) if arrays and second in _ML_DTYPES and _has_ml_dtypes() else first
    import numpy as np
    out = np.empty(len(second), dtype=object)
    out[:] = second
    return out.reshape(first)

  def __call__(self, inputs: dict[str, Any], debug: int | None = None) -> dict[str, Any]:
    """Returns the outputs by name. An array comes in without a copy where its memory is contiguous: it must not change
    before the results are computed. Where all inputs are arrays, results of types that NumPy lacks (bfloat16, 8-bit
    floats, 4-bit numbers) are arrays of ml_dtypes, if that is installed.
    debug (DEBUGONNX): prints each node; ONNXLIMIT: the number of the last node, whose outputs are returned."""
    level = getenv("DEBUGONNX", 0) if debug is None else debug
    wanted = (level >= 1, getenv("ONNXLIMIT", -1))
    if wanted != self._debug:  # rarely: threads may call one model at once
      self._model.debug(*wanted)
      self._debug = wanted
    arrays = bool(inputs) and not any(isinstance(v, Tensor) for v in inputs.values())
    got = self._model.run({name: self._given(name, v) for name, v in inputs.items()}, self._device)
    return {name: self._result(v, arrays) for name, v in got.items()}


  def captured(self, **sizes: tuple[int, int]) -> CapturedRunner:
    """Returns the model as a function whose calls are replays. Sizes with a range, by the names that the inputs have
    for them (of a size without a name "INPUT.AXIS"), are variables: one capture serves every size from the least to the
    most: runner.captured(batch=(1, 64)). See docs/onnx.md."""
    return CapturedRunner(self, sizes)


class CapturedRunner:
  """A model whose calls are replays: see OnnxRunner.captured. It takes what the runner does, but for sequences and
  texts, and returns computed tensors by name."""
  def __init__(self, runner: OnnxRunner, sizes: dict[str, tuple[int, int]]):
    self.runner, self._model = runner, _core.OnnxCapturedModel(runner._model, sizes)

  def __call__(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
    return self._model.run({name: self.runner._given(name, v) for name, v in inputs.items()})


def onnx_load(path: str | pathlib.Path | bytes | Tensor, **options: Any) -> OnnxRunner:
  """Returns the runner of a model."""
  return OnnxRunner(path, **options)


from .onnx_proto import OnnxPBParser  # noqa: E402, F401
from .onnx_ops import onnx_ops  # noqa: E402, F401
