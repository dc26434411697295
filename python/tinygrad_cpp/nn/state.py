"""Parameters by name, and files of them."""
from __future__ import annotations
import functools, io, pathlib
from collections import OrderedDict
from typing import Any, BinaryIO, Callable, Iterable
from .. import _core
from ..dtype import dtypes
from ..helpers import DEBUG, GlobalCounters, Timing, tqdm
from ..tensor import Tensor


# *** state dicts ***

def get_state_dict(obj: Any, prefix: str = "", tensor_type: type = Tensor) -> dict[str, Tensor]:
  """The tensors an object holds in attributes, lists, tuples, dicts and named tuples, under names such as "layers.0.weight"."""
  found: dict[str, Tensor] = {}
  pending: list[tuple[Any, str]] = [(obj, prefix)]  # the next one is at the end
  while pending:
    o, at = pending.pop()
    if isinstance(o, tensor_type):
      found[at.strip(".")] = o
      continue
    if hasattr(o, "_asdict"): o = o._asdict()
    elif isinstance(o, OrderedDict): o = dict(o)
    elif hasattr(o, "__dict__"): o = o.__dict__
    if isinstance(o, (list, tuple)): o = dict(enumerate(o))
    if isinstance(o, dict): pending += [(v, f"{at}{k}.") for k, v in reversed(o.items())]
  return found


def get_parameters(obj: Any) -> list[Tensor]:
  """All tensors of an object's state, statistics included."""
  return list(get_state_dict(obj).values())


def _some(names: Iterable[str], most: int = 10) -> str:
  names = list(names)
  return ", ".join(map(repr, names[:most])) + (f", ... ({len(names)})" if len(names) > most else "")


def load_state_dict(model: Any, state_dict: dict[str, Tensor], strict=True, verbose=True, consume=False, realize=True) -> list[Tensor]:
  """Gives the tensors of a model the values of the same names, and returns those that were loaded. Nothing is changed when it raises: KeyError that lists
  the names the dictionary lacks (strict), ValueError that lists shapes that differ ((1,) and () are taken for one another). Names that only the
  dictionary has are reported with DEBUG=1. consume: entries are removed as they are loaded."""
  own = get_state_dict(model)
  missing = [k for k in own if k not in state_dict]
  unexpected = [k for k in state_dict if k not in own]
  if strict and missing:
    raise KeyError(f"missing in the state dict: {_some(missing)}" + (f"; not in the model: {_some(unexpected)}" if unexpected else "") +
                   " (strict=False loads what both have)")
  wrong = [f"Shape mismatch in layer `{k}`: Expected shape {v.shape}, but found {state_dict[k].shape} in state dict." for k, v in own.items()
           if k in state_dict and v.shape != state_dict[k].shape and {(), (1,)} != {v.shape, state_dict[k].shape}]
  if wrong: raise ValueError("\n".join(wrong))
  if DEBUG >= 1:
    if unexpected: print("WARNING: unused weights in state_dict", sorted(unexpected))
    for k in missing: print(f"WARNING: not loading {k}")
  loaded, before = [], GlobalCounters.mem_used
  with Timing("loaded weights in ", lambda ns: f", {(size := GlobalCounters.mem_used - before) / 1e9:.2f} GB loaded at {size / ns:.2f} GB/s", enabled=verbose):
    for k, v in (t := tqdm(own.items(), disable=None if verbose else True)):
      t.desc = f"ram used: {GlobalCounters.mem_used / 1e9:5.2f} GB, {k:50s}: "
      if k not in state_dict: continue
      value = state_dict[k] if v.shape == state_dict[k].shape else state_dict[k].reshape(v.shape)
      if isinstance(v.device, tuple) and not isinstance(value.device, tuple): v.replace(value.shard(v.device, v.uop.axis))
      else: v.replace(value if isinstance(v.device, tuple) else value.to(v.device))
      if realize: v.realize()
      if consume: del state_dict[k]
      loaded.append(v)
  return loaded


# *** files ***

class TensorIO(io.RawIOBase, BinaryIO):
  """A tensor of bytes as a file to read."""
  def __init__(self, t: Tensor):
    if t.ndim != 1 or t.dtype != dtypes.uint8: raise ValueError(f"[TensorIO] got shape {t.shape} of {t.dtype}, expected one axis of uint8")
    self._position, self._tensor = 0, t

  def readable(self) -> bool: return True
  def seekable(self) -> bool: return True
  def __enter__(self): return self
  def read(self, size: int = -1) -> bytes: return super().read(size) or b""
  def readinto(self, buffer: Any) -> int:
    n = min(len(buffer), len(self._tensor) - self._position)
    if n > 0: buffer[:n] = self._tensor[self._position:self._position + n].data()
    self._position += max(n, 0)
    return max(n, 0)
  def seek(self, offset: int, whence: int = 0) -> int:
    self._position = min(len(self._tensor), max(0, (0, self._position, len(self._tensor))[whence] + offset))
    return self._position
  def write(self, s: Any): raise io.UnsupportedOperation("a TensorIO is only read")
  def writelines(self, lines: Iterable[Any]): raise io.UnsupportedOperation("a TensorIO is only read")


def accept_filename(func: Callable) -> Callable:
  """Lets a function of a tensor of bytes also take the name of a file."""
  @functools.wraps(func)
  def wrapper(fn: Tensor | str | pathlib.Path): return func(fn if isinstance(fn, Tensor) else Tensor(pathlib.Path(fn)))
  return wrapper
