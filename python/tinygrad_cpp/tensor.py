"""The class Tensor."""
import contextlib
from typing import cast  # noqa: F401
from . import _core
from ._context import Context
from ._core import Tensor  # noqa: F401
from .dtype import _to_np_dtype, dtypes  # noqa: F401


def is_numpy_ndarray(x) -> bool:
    return str(type(x)) == "<class 'numpy.ndarray'>"


def _unpickle(*state):  # pickle wants a Python function
    return _core._tensor_from_pickle(*state)


# ---- names of older versions ----
def _train(mode: bool = True) -> Context:
    """Training mode in a `with` block or a decorated function: `with Tensor.train(): ...`."""
    return Context(TRAINING=int(mode))


class _NoGrad(contextlib.ContextDecorator):
    """Gradients are only computed when backward() asks for them: nothing to switch off."""

    def __init__(self, *_): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass


Tensor.train, Tensor.test, Tensor.no_grad, Tensor.inference_mode = staticmethod(_train), staticmethod(lambda: _train(False)), _NoGrad, _NoGrad
