"""Data sets of the examples, as tensors of uint8: (train images, train labels, test images, test labels). The files are
looked for in $TINYGRAD_DATA, the source tree and the user's cache, else downloaded into the latter."""
from __future__ import annotations
from .. import _core
from ..tensor import Tensor


def mnist(device: str | None = None, fashion: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  """MNIST or Fashion-MNIST: images (60000, 1, 28, 28) and (10000, 1, 28, 28)."""
  return _core.nn_mnist(device, bool(fashion))


def cifar(device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  """CIFAR-10: images (50000, 3, 32, 32) and (10000, 3, 32, 32)."""
  return _core.nn_cifar(device)
