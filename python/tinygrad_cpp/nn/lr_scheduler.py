"""Schedules of the learning rate, with PyTorch's formulas. They write into the optimizer's lr: call step() after the
optimizer's."""
from __future__ import annotations
from typing import Any, Callable, Sequence
from .._core import train as _train
from .._core.train import LrScheduler  # noqa: F401
from ..tensor import Tensor


def _lr(optimizer: Any) -> Tensor:
  lr = optimizer if isinstance(optimizer, Tensor) else getattr(optimizer, "lr", None)
  if not isinstance(lr, Tensor):
    raise TypeError(f"[lr_scheduler] got {type(optimizer).__name__}, expected an optimizer or its lr (of a group: one "
                    f"of its optimizers)")
  return lr


def StepLR(optimizer, step_size: int, gamma: float = 0.1) -> LrScheduler:
  """Times gamma every step_size steps."""
  return _train.StepLR(_lr(optimizer), step_size, gamma)


def MultiStepLR(optimizer, milestones: Sequence[int], gamma: float = 0.1) -> LrScheduler:
  """Times gamma at each milestone."""
  return _train.MultiStepLR(_lr(optimizer), list(milestones), gamma)


def ExponentialLR(optimizer, gamma: float) -> LrScheduler:
  """Times gamma at each step."""
  return _train.ExponentialLR(_lr(optimizer), gamma)


def LinearLR(optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5) -> LrScheduler:
  """From start_factor to end_factor times the rate in a straight line."""
  return _train.LinearLR(_lr(optimizer), start_factor, end_factor, total_iters)


def PolynomialLR(optimizer, total_iters: int = 5, power: float = 1.0, eta_min: float = 0.0,
                 warmup_steps: int = 0) -> LrScheduler:
  """A climb in warmup_steps to the rate, then rate * (1 - t / total_iters)^power down to eta_min."""
  return _train.PolynomialLR(_lr(optimizer), total_iters, power, eta_min, warmup_steps)


def CosineAnnealingLR(optimizer, T_max: int, eta_min: float = 0.0, warmup_steps: int = 0) -> LrScheduler:
  """A climb in warmup_steps to the rate, then half a cosine wave down to eta_min in T_max steps."""
  return _train.CosineAnnealingLR(_lr(optimizer), T_max, eta_min, warmup_steps)


def OneCycleLR(optimizer, max_lr: float, total_steps: int, pct_start: float = 0.3, anneal_strategy: str = "cos",
               div_factor: float = 25.0,
               final_div_factor: float = 1e4) -> LrScheduler:
  """Up to max_lr and down again."""
  if anneal_strategy not in ("cos", "linear"):
    raise ValueError(f"[OneCycleLR] got anneal_strategy={anneal_strategy!r}, expected 'cos' or 'linear'")
  return _train.OneCycleLR(_lr(optimizer), max_lr, total_steps, pct_start, div_factor, final_div_factor,
                           anneal_strategy == "cos")


def LambdaLR(optimizer, lr_lambda: Callable[[int], float]) -> LrScheduler:
  """The rate times lr_lambda(step)."""
  return _train.LambdaLR(_lr(optimizer), lr_lambda)


def ReduceLROnPlateau(optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                      threshold_mode: str = "rel",
                      cooldown: int = 0, min_lr: float = 0.0):
  """Times factor when the metric given to step(metric) stops to improve for more than patience steps."""
  if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
    raise ValueError(f"[ReduceLROnPlateau] got mode={mode!r} and threshold_mode={threshold_mode!r}, expected min or "
                     f"max, and rel or abs")
  return _train.ReduceLROnPlateau(_lr(optimizer), mode == "max", factor, patience, threshold, threshold_mode == "rel",
                                  cooldown, min_lr)
