"""The class Tensor."""
from typing import cast  # noqa: F401
from . import _core
from ._core import Tensor  # noqa: F401
from .dtype import _to_np_dtype, dtypes  # noqa: F401


def is_numpy_ndarray(x) -> bool:
    return str(type(x)) == "<class 'numpy.ndarray'>"


def _unpickle(*state):  # pickle wants a Python function
    return _core._tensor_from_pickle(*state)
