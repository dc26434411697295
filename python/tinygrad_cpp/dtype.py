"""Types of elements, the promotion lattice, and how numbers are stored in a type."""
from __future__ import annotations
import enum, functools, math, struct
from typing import Any, Callable, ClassVar, Literal

from . import _core
from ._core import DType, can_lossless_cast, float_to_fp8, fp8_to_float  # noqa: F401
from ._core import least_upper_dtype, least_upper_float, strong_dtype, sum_acc_dtype  # noqa: F401


class ConstFloat(float):
  """A float of which every NaN is equal, and -0.0 and 0.0 hash apart."""
  __slots__ = ("bits",)
  bits: int

  def __new__(cls, v: float) -> ConstFloat:
    self = super().__new__(cls, v)
    self.bits = struct.unpack("<Q", struct.pack("<d", v))[0]
    return self

  def __eq__(self, other: Any) -> bool:
    if isinstance(other, float) and math.isnan(self): return math.isnan(other)
    return float.__eq__(self, other)
  def __ne__(self, other: Any) -> bool:
    equal = self.__eq__(other)
    return equal if equal is NotImplemented else not equal
  def __hash__(self) -> int: return hash(self.bits)
  def __repr__(self) -> str: return f"ConstFloat({float.__repr__(self)})"
  def __str__(self) -> str: return float.__repr__(self)


class InvalidType:
  """The class of `Invalid`, the value of an element that is not there."""
  _instance: ClassVar[InvalidType | None] = None

  def __new__(cls) -> InvalidType:
    if cls._instance is None: cls._instance = super().__new__(cls)
    return cls._instance
  def __eq__(self, other: Any) -> bool: return self is other if isinstance(other, InvalidType) else NotImplemented
  def __hash__(self) -> int: return id(self)
  def __repr__(self) -> str: return "Invalid"
  def __format__(self, spec: str) -> str: return "Invalid"
  def __reduce__(self) -> tuple: return InvalidType, ()


Invalid = InvalidType()
PyConst = float | int | bool
ConstType = float | int | bool | InvalidType
FmtStr = Literal["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d"]


class AddrSpace(enum.IntEnum):
  """Where memory is."""
  GLOBAL = 1
  LOCAL = 2
  REG = 3
  ALU = 4
  def __repr__(self) -> str: return f"AddrSpace.{self.name}"
  __str__ = __repr__


_by_spelling = {d.spelling: d for d in _core.all_dtypes()}


class DTypes:
  """The types by name. `dtypes` is the object of this class."""
  void, bool, weakint, weakfloat = (_by_spelling[n] for n in ("void", "bool", "weakint", "weakfloat"))
  int8, uint8, int16, uint16, int32, uint32, int64, uint64 = (_by_spelling[f"{u}int{b}"] for b in (8, 16, 32, 64)
                                                              for u in ("", "u"))
  fp8e4m3, fp8e5m2, fp8e4m3fnuz, fp8e5m2fnuz = (_by_spelling[n]
                                                for n in ("fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz"))
  float16, bfloat16, float32, float64 = (_by_spelling[n] for n in ("float16", "bfloat16", "float32", "float64"))

  half, float, double = float16, float32, float64
  uchar, ushort, uint, ulong = uint8, uint16, uint32, uint64
  char, short, int, long = int8, int16, int32, int64

  fp8_ocp, fp8_fnuz = (fp8e4m3, fp8e5m2), (fp8e4m3fnuz, fp8e5m2fnuz)
  fp8s = fp8_ocp + fp8_fnuz
  floats = fp8s + (float16, bfloat16, float32, float64)
  int8s, int16s, int32s, int64s = (uint8, int8), (uint16, int16), (uint32, int32), (uint64, int64)
  uints, sints = (uint8, uint16, uint32, uint64), (int8, int16, int32, int64)
  ints = uints + sints
  weaks = (weakint, weakfloat)
  all = floats + ints + (bool,)

  @property
  def default_float(self) -> DType:
    """The type of float literals and of new tensors (DEFAULT_FLOAT); it can be set."""
    return _core.default_float()
  @default_float.setter
  def default_float(self, d: DType) -> None: _core.env_set("DEFAULT_FLOAT", to_dtype(d).spelling)
  @property
  def default_int(self) -> DType:
    """The type of integer literals (DEFAULT_INT); it can be set."""
    return _core.default_int()
  @default_int.setter
  def default_int(self, d: DType) -> None: _core.env_set("DEFAULT_INT", to_dtype(d).spelling)

  is_int, is_float, is_unsigned = staticmethod(_core.is_int), staticmethod(_core.is_float), staticmethod(
      _core.is_unsigned)
  @staticmethod
  def is_bool(x: DType): return x == DTypes.bool

  @staticmethod
  def from_py(x: Any) -> DType:
    """The type of a Python number, or of a list of them. RuntimeError for anything else."""
    match x:
      case _ if x is True or x is False or isinstance(x, InvalidType): return DTypes.bool
      case _ if _is_float(x): return DTypes.weakfloat
      case _ if _is_int(x): return DTypes.weakint
      case list() | tuple(): return strong_dtype(max(map(DTypes.from_py, x))) if x else dtypes.default_float
    raise RuntimeError(f"Could not infer dtype of {x} with type {type(x)}")

  @staticmethod
  def finfo(dtype: DType) -> tuple:
    """Bits of the exponent and of the mantissa."""
    if not _core.is_float(dtype): raise ValueError(f"{dtype} is not a floating point type")
    return _core.finfo(dtype)


# in the class these names are types
def _is_float(x: Any) -> bool: return isinstance(x, float)
def _is_int(x: Any) -> bool: return isinstance(x, int)


dtypes = DTypes()
DTypeLike = str | DType
DTYPES_DICT = {k: d for k, d in vars(DTypes).items() if isinstance(d, DType) and not k.startswith(("void", "weak"))}
INVERSE_DTYPES_DICT = {**{d.name: k for k, d in DTYPES_DICT.items()}, "void": "void", "weakint": "weakint",
                       "weakfloat": "weakfloat"}


def to_dtype(dtype: DTypeLike) -> DType:
  """A type, or the type of a name. AttributeError for an unknown name."""
  return dtype if isinstance(dtype, DType) else getattr(dtypes, dtype.lower())


def weak_dtype(dtype: DType) -> DType:
  """weakfloat for floats, weakint for integers, other types unchanged."""
  return dtypes.weakfloat if dtypes.is_float(dtype) else dtypes.weakint if dtypes.is_int(dtype) else dtype


def _const(self: DType, val: ConstType) -> ConstType:
  """A value as this type holds it."""
  if isinstance(val, InvalidType): return val
  if dtypes.is_float(self): return ConstFloat(_core.truncate(self, math.nan if val != val else val))
  return bool(val) if self == dtypes.bool else int(val)


def _new(priority: int, bitsize: int, name: str, fmt: str | None) -> DType:
  """The type with these facts. ValueError when there is none."""
  for d in _core.all_dtypes():
    if (d.priority, d.bitsize, d.name, d.fmt) == (priority, bitsize, name, fmt): return d
  raise ValueError(f"no type {name!r} with {bitsize} bits")


DType.const, DType.new = _const, staticmethod(_new)

truncate: dict[DType, Callable] = {d: functools.partial(_core.truncate, d) for d in dtypes.all}


def float_to_fp16(x: float) -> float:
  """The nearest half, as a float; what is too large becomes infinite."""
  return _core.truncate(dtypes.half, x)


def float_to_bf16(x: float) -> float:
  """The nearest bfloat16, as a float; NaN and infinities stay what they are."""
  return _core.truncate(dtypes.bfloat16, x) if math.isfinite(x) else x


def storage_fmt_for_dtype(dtype: DType) -> str | None:
  """Format of the module struct for an element in memory; types that Python lacks are their bits."""
  return "H" if dtype == dtypes.bfloat16 else "B" if dtype in dtypes.fp8s else dtype.fmt


def to_storage_scalar(x: Any, dtype: DType) -> Any:
  """A number as `storage_fmt_for_dtype` packs it."""
  if dtype == dtypes.bfloat16: return struct.unpack("I", struct.pack("f", float_to_bf16(x)))[0] >> 16
  if dtype in dtypes.fp8s: return float_to_fp8(float(x), dtype)
  return float_to_fp16(x) if dtype == dtypes.half else x


def from_storage_scalar(x: Any, dtype: DType) -> Any:
  """The number that `storage_fmt_for_dtype` unpacked to `x`."""
  if dtype == dtypes.bfloat16: return struct.unpack("f", struct.pack("I", (x & 0xFFFF) << 16))[0]
  return fp8_to_float(int(x), dtype) if dtype in dtypes.fp8s else x


def bitcast(x: Any, in_dtype: DType, out_dtype: DType) -> Any:
  """The number of type `out_dtype` whose bits those of `x` in `in_dtype` are."""
  assert in_dtype.itemsize == out_dtype.itemsize, f"no bitcast from {in_dtype} to {out_dtype}: the sizes differ"
  bits = struct.pack(storage_fmt_for_dtype(in_dtype), to_storage_scalar(x, in_dtype))
  return from_storage_scalar(struct.unpack(storage_fmt_for_dtype(out_dtype), bits)[0], out_dtype)


# ---- NumPy and PyTorch ----

def _to_np_dtype(dtype: DType):
  import numpy as np
  if dtype == dtypes.bfloat16 or dtype in dtypes.fp8s: return np.float32
  return None if dtype.fmt is None else np.dtype(np.dtype(dtype.fmt).str).type  # by width: "q" alone would be longlong


def _from_np_dtype(npdtype) -> DType:
  import numpy as np
  return DTYPES_DICT[np.dtype(npdtype).name]


@functools.cache
def _torch_dtypes() -> dict:
  import torch
  # the 8-bit floats go as bytes
  found = {d: getattr(torch, "uint8" if d in dtypes.fp8s else d.spelling, None) for d in dtypes.all}
  return {d: t for d, t in found.items() if t is not None}


def _to_torch_dtype(dtype: DType):
  return _torch_dtypes().get(strong_dtype(dtype))


def _from_torch_dtype(torchdtype) -> DType:
  return next(d for d, t in _torch_dtypes().items() if t == torchdtype and d not in dtypes.fp8s)
