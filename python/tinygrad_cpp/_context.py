"""Context variables: handles for the library's environment table, and variables that Python code makes for itself."""
from __future__ import annotations
import contextlib, difflib, functools, os, re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from . import _core


@functools.cache
def getenv(key: str, default: Any = 0) -> Any:
  """The environment variable `key`, converted to the type of `default`. Remembered; `getenv.cache_clear()` forgets."""
  return type(default)(os.getenv(key, default))


class ContextVar:
  """A setting with an initial value from the environment.

  A name of the library's environment table (`tg env` prints it) is that variable as this thread sees it; any other name
  lives in Python alone.
  Compares with numbers and strings by its value. Making a name twice is a RuntimeError.
  """

  _cache: ClassVar[dict[str, ContextVar]] = {}

  def __init__(self, key: str, default_value: Any):
    if key in ContextVar._cache: raise RuntimeError(f"attempt to recreate ContextVar {key}")
    ContextVar._cache[key] = self
    self.key = key
    self._native = key in _core.env_names()
    if not self._native: self.value = getenv(key, default_value)

  @property
  def value(self) -> Any: return _core.env_get(self.key) if self._native else self._value
  @value.setter
  def value(self, v: Any) -> None:
    if not self._native: self._value = v
    # a dtype stands for its name, a bool for 0 or 1
    else: _core.env_set(self.key, v if isinstance(v, str) else getattr(v, "spelling", None) or int(v))

  def __bool__(self) -> bool: return bool(self.value)
  def __int__(self) -> int: return int(self.value)
  __index__ = __int__
  __hash__ = object.__hash__
  def __eq__(self, other: Any) -> bool: return self.value == other
  def __ne__(self, other: Any) -> bool: return self.value != other
  def __lt__(self, other: Any) -> bool: return self.value < other
  def __le__(self, other: Any) -> bool: return self.value <= other
  def __gt__(self, other: Any) -> bool: return self.value > other
  def __ge__(self, other: Any) -> bool: return self.value >= other
  def __repr__(self) -> str: return f"ContextVar({self.key!r}, {self.value!r})"

  def tolist(self, obj: Any = None) -> list:
    """The parts of a comma separated string; as attributes of `obj` where one is given."""
    assert isinstance(self.value, str), f"{self.key} is no string"
    names = [part for part in self.value.split(",") if part]
    return [getattr(obj, name) for name in names] if obj else names


class Context(contextlib.ContextDecorator):
  """Sets context variables for a `with` block or for the calls of a function: `with Context(DEBUG=2): ...`. KeyError
  for an unknown name."""

  def __init__(self, **kwargs: Any):
    self.kwargs = kwargs
    self._before: list[dict[str, Any]] = []  # one entry per open block: a decorated function may call itself

  def __enter__(self) -> Context:
    for name in self.kwargs:
      if name not in ContextVar._cache:
        near = difflib.get_close_matches(name, ContextVar._cache, 1)
        hint = f": did you mean {near[0]}?" if near else ", expected a ContextVar of helpers"
        raise KeyError(f"[Context] got the unknown variable {name}{hint}")
    before = {name: ContextVar._cache[name].value for name in self.kwargs}
    self._before.append(before)
    try:
      for name, v in self.kwargs.items(): ContextVar._cache[name].value = v
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exc: Any) -> None:
    for name, v in self._before.pop().items(): ContextVar._cache[name].value = v


@dataclass(frozen=True)
class Target:
  """Where code runs and how it is made: `[INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]]`."""

  device: str = ""
  renderer: str = ""
  arch: str = ""
  interface: str = ""
  indices: str = ""

  @staticmethod
  def parse(s: str) -> Target:
    interface, plus, rest = s.rpartition("+")
    if "+" in interface: raise RuntimeError(f"too many '+' in target string: {s!r}")
    interface, _, indices = interface.rpartition(":") if ":" in interface else (interface, "", "")
    parts = rest.split(":")
    if len(parts) > 3: raise RuntimeError(f"too many ':' in target string: {s!r}")
    device, renderer, arch = parts + [""] * (3 - len(parts))
    return Target(device.upper(), renderer.upper(), arch, interface, indices)

  def __repr__(self) -> str:
    left, right = ":".join((self.interface, self.indices)).rstrip(":"), ":".join((self.device, self.renderer,
        self.arch)).rstrip(":")
    return f"{left}+{right}" if left else right

  def replacedefault(self, **kwargs: str) -> Target:
    """A copy in which the fields that are empty take these values."""
    return replace(self, **{name: v for name, v in kwargs.items() if not getattr(self, name)})


class _DevVar(ContextVar):
  """DEV as a list of targets, `;` between them in the environment. Attributes are those of the first: DEV.device,
  DEV.renderer, ..."""

  def __init__(self) -> None: super().__init__("DEV", "")

  @property
  def value(self) -> list[Target]: return [Target.parse(part) for part in _core.env_get("DEV").split(";")]
  @value.setter
  def value(self, v: str | Target | list[Target]) -> None:
    targets = v if isinstance(v, list) else [v] if isinstance(v,
                                                              Target) else [Target.parse(part) for part in v.split(";")]
    _core.env_set("DEV", ";".join(map(repr, targets)))

  def __repr__(self) -> str: return ";".join(map(repr, self.value))
  def __getattr__(self, name: str) -> Any:
    if name.startswith("_"): raise AttributeError(name)
    return getattr(self.value[0], name)

  def target(self, dev: str, **kwargs: str) -> Target:
    """What DEV says about a device, with `kwargs` for what it leaves open."""
    old = f"{dev}_CC"
    assert not (v := getenv(old, "")), f"{old}={v} is deprecated, use DEV='{dev}:{v}' instead"
    mine = next((t for t in self.value if t.device in ("", dev)), Target(dev))
    return replace(mine.replacedefault(**kwargs), device=dev)


DEV = _DevVar()
for _name in _core.env_names():
  if _name != "DEV": globals()[_name] = ContextVar(_name, 0)
USE_TC = ContextVar._cache["TC"]

# Settings of tinygrad that have no counterpart here: code may set and read them.
for _name, _default in {
    "IMAGE": 0, "FLOAT16": 0, "OPENPILOT_HACKS": 0, "JIT_BATCH_SIZE": 32, "CAPTURING": 1, "TRACEMETA": 1,
    "TC_SELECT": -1, "TC_OPT": 0, "RING": 1,
    "ALL2ALL": 0, "ALLREDUCE_CAST": 1, "DISABLE_FAST_IDIV": 1, "FUSE_OPTIM": 0, "ALLOW_DEVICE_USAGE": 1,
    "CAPTURE_PROCESS_REPLAY": 0,
    "NULL_ALLOW_COPYOUT": 0, "CHECK_OOB": 0, "IGNORE_OOB": 1, "PCONTIG": 0, "DEBUG_RANGEIFY": 0, "TUPLE_ORDER": 1,
    "USE_ATOMICS": 0,
    "DISALLOW_BROADCAST": 0, "DEVECTORIZE": 1, "QUANTIZE": 0,
}.items():
  if _name not in ContextVar._cache: globals()[_name] = ContextVar(_name, _default)

__all__ = ["getenv", "ContextVar", "Context", "Target", "DEV",
           "USE_TC"] + [n for n in ContextVar._cache if n in globals()]
