"""The class Tensor."""
import contextlib
import os
from typing import cast  # noqa: F401
from . import _core
from ._context import Context
from ._core import Tensor  # noqa: F401
from .dtype import _to_np_dtype, dtypes  # noqa: F401


_core._set_package_folder(os.path.dirname(os.path.abspath(__file__)) + os.sep)


def is_numpy_ndarray(x) -> bool:
  return str(type(x)) == "<class 'numpy.ndarray'>"


def _unpickle(*state):  # pickle wants a Python function
  return _core._tensor_from_pickle(*state)


def _set_contents(tensor, data):
  _core._set_tensor_contents(tensor, data)


# ---- names of older versions ----
def _train(mode: bool = True) -> Context:
  """Training mode in a `with` block or a decorated function: `with Tensor.train(): ...`."""
  return Context(TRAINING=int(mode))


class _NoGrad(contextlib.ContextDecorator):
  """Gradients are only computed when backward() asks for them: nothing to switch off."""

  def __init__(self, *_): pass
  def __enter__(self): return self
  def __exit__(self, *_): pass


def _test() -> Context:
  """The opposite of training mode."""
  return _train(False)


Tensor.train, Tensor.test = staticmethod(_train), staticmethod(_test)
Tensor.no_grad, Tensor.inference_mode = _NoGrad, _NoGrad


class _Counter:
  """The count of random words drawn on a device. It lives on the host and is never a pending computation; this looks
  like the tensor older code expects."""

  class uop:
    is_realized = False

  def __init__(self, device):
    self.device = device

  def assign(self, words):
    low, high = words.tolist()
    Tensor._set_rng_counter(self.device, high << 32 | low)
    return self

  def realize(self):
    return self

  def tolist(self):
    n = Tensor._rng_counters()[self.device]
    return [n & 0xFFFFFFFF, n >> 32]

  def numpy(self):
    import numpy as np
    return np.array(self.tolist(), dtype=np.uint32)


class _Counters:
  """Devices random numbers were drawn on since the seed was set."""

  def __len__(self):
    return len(Tensor._rng_counters())

  def __contains__(self, device):
    return device in Tensor._rng_counters()

  def __getitem__(self, device):
    if device not in self:
      raise KeyError(device)
    return _Counter(device)


Tensor._device_rng_counters = Tensor._device_seeds = _Counters()
