"""Types of elements."""
from . import _core
from ._core import DType, can_lossless_cast, least_upper_dtype, least_upper_float, strong_dtype, sum_acc_dtype  # noqa: F401


class dtypes:
    """The types, by name."""


for _d in _core.all_dtypes():
    setattr(dtypes, _d.name, _d)
dtypes.half, dtypes.float, dtypes.double = dtypes.float16, dtypes.float32, dtypes.float64
dtypes.short, dtypes.int, dtypes.long = dtypes.int16, dtypes.int32, dtypes.int64
dtypes.uchar, dtypes.ushort, dtypes.uint, dtypes.ulong = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64


def _to_np_dtype(dtype):
    import numpy as np
    return getattr(np, dtype.name, None)
