"""Timing of blocks, Python profiles and profile events."""
from __future__ import annotations
import contextlib, decimal, functools, sys, time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

from ._context import PROFILE, VIZ


class Timing(contextlib.ContextDecorator):
  """Prints how long a block took. `on_exit(ns)` gives words for the end of the line; `.et` holds the nanoseconds
  afterwards."""

  def __init__(self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True):
    self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled
  def __enter__(self) -> Timing:
    self.st = time.perf_counter_ns()
    return self
  def __exit__(self, *exc: Any) -> None:
    self.et = time.perf_counter_ns() - self.st
    if self.enabled: print(f"{self.prefix}{self.et / 1e6:6.2f} ms" + (self.on_exit(self.et) if self.on_exit else ""))


class Profiling(contextlib.ContextDecorator):
  """Runs a block under cProfile and prints the first `frac` of its functions in the order `sort`. `fn`: also a file for
  the statistics."""

  def __init__(self, enabled: bool = True, sort: str = "cumtime", frac: float = 0.2, fn: str | None = None,
               ts: float = 1):
    self.enabled, self.sort, self.frac, self.fn, self.time_scale = enabled, sort, frac, fn, 1e3 / ts
  def __enter__(self) -> Profiling:
    import cProfile
    self.pr = cProfile.Profile()
    if self.enabled: self.pr.enable()
    return self
  def __exit__(self, *exc: Any) -> None:
    if not self.enabled: return
    import pstats
    from .helpers import colored
    self.pr.disable()
    if self.fn: self.pr.dump_stats(self.fn)
    stats = pstats.Stats(self.pr).strip_dirs().sort_stats(self.sort)
    where = lambda f: f"{f[0]}:{f[1]}:{f[2]}"
    functions = stats.fcn_list  # type: ignore[attr-defined]
    for fcn in functions[:int(len(functions) * self.frac)]:
      _, calls, own, total, callers = stats.stats[fcn]  # type: ignore[attr-defined]
      times = f"n:{calls:8d}  tm:{own * self.time_scale:7.2f}ms  tot:{total * self.time_scale:7.2f}ms"
      line = f"{times} {colored(where(fcn).ljust(50), 'yellow')}"
      if callers:
        most, took = max(((c, v[2]) for c, v in callers.items()), key=lambda cv: cv[1])
        line += " " + colored(f"<- {100 * took / own if own else 100:3.0f}% {where(most)}", "BLACK")
      print(line)


def perf_counter_us() -> decimal.Decimal: return decimal.Decimal(time.perf_counter_ns()) / 1000


@functools.cache
def lines(fn: str) -> list[str]:
  """The lines of a source file; none when it cannot be read."""
  try:
    with open(fn, encoding="utf-8") as f: return f.readlines()
  except OSError: return []


def printable(loc: tuple[str, int]) -> str:
  """The source line at (file, line)."""
  text = lines(loc[0])
  return text[loc[1] - 1].strip() if 0 < loc[1] <= len(text) else "<missing>"


def get_stacktrace(frm: Any, max_frames: int = 30) -> tuple[tuple, ...]:
  """(file, line, function, text) of the callers of a frame, innermost first."""
  trace: list[tuple] = []
  while len(trace) < max_frames and (frm := frm.f_back) is not None:
    place = (frm.f_code.co_filename, frm.f_lineno)
    trace.append((*place, frm.f_code.co_name, printable(place)))
  return tuple(trace)


@dataclass(frozen=True)
class TracingKey:
  """The name of an event, with keys to look for related ones."""
  display_name: str
  keys: tuple[Any, ...] = ()
  ret: Any = None
  tb: tuple[tuple, ...] | None = field(default_factory=lambda: get_stacktrace(sys._getframe(1)) if VIZ else None)


class ProfileEvent: pass


@dataclass
class ProfileRangeEvent(ProfileEvent):
  """Something that took from `st` to `en`, in microseconds."""
  device: str
  name: str | TracingKey
  st: decimal.Decimal
  en: decimal.Decimal | None = None
  profile_key: bytes | None = None


@dataclass(frozen=True)
class ProfilePointEvent(ProfileEvent):
  """Something that happened at `ts`."""
  device: str
  name: str
  key: Any
  arg: Any = field(default_factory=dict)
  ts: decimal.Decimal = field(default_factory=perf_counter_us)


cpu_events: list[ProfileEvent] = []


@contextlib.contextmanager
def cpu_profile(name: str | TracingKey, device: str = "TINY", display: bool = True,
                profile_key: bytes | None = None) -> Iterator[ProfileRangeEvent]:
  """Records a block in `cpu_events` under PROFILE=1."""
  event = ProfileRangeEvent(device, name, perf_counter_us(), profile_key=profile_key)
  try: yield event
  finally:
    event.en = perf_counter_us()
    if PROFILE and display: cpu_events.append(event)


def profile_marker(name: str, color: str = "gray") -> None:
  """Marks a moment in the profile."""
  cpu_events.append(ProfilePointEvent("TINY", "marker", None, {"name": name, "color": color}))
