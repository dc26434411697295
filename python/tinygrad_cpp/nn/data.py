"""Batches of samples and augmentation of images on their device."""
from __future__ import annotations
from typing import Callable, Sequence
from .._core import train as _train
from .._core.train import center_crop, cutmix, mixup, normalize, random_crop, random_flip, to_unit  # noqa: F401
from ..tensor import Tensor


def DataLoader(*tensors: Tensor, batch_size: int = 1, shuffle: bool = False, seed: int = 0, drop_last: bool = False,
               workers: int = 0, prefetch: int = 2, device: str | None = None, transforms: Sequence[Callable] = (),
               progress: str = "", parts: int = 1, part: int = 0):
  """Batches of the rows of tensors, in an order that seed and the number of the epoch determine; each batch is a list
  with a part of every tensor.
  workers: threads that read up to prefetch batches ahead. transforms: functions of the list, applied in turn. progress:
  label of a progress bar. parts, part: processes that share each batch, and which of them this is; it gets its rows."""
  tensors = [t if isinstance(t, Tensor) else Tensor(t) for t in tensors]
  return _train.DataLoader(tensors, batch_size, shuffle, seed, drop_last, workers, prefetch, device or "",
                           list(transforms), progress, parts, part)
