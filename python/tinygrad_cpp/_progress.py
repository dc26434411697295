"""Progress bars that read like tqdm's."""
from __future__ import annotations
import shutil, sys, time
from typing import Any, Generic, Iterable, Iterator, TypeVar

T = TypeVar("T")
_PARTS = " ▏▎▍▌▋▊▉"


def _clock(seconds: float) -> str:
  minutes, s = divmod(int(seconds), 60)
  h, m = divmod(minutes, 60)
  return f"{h}:{m:02d}:{s:02d}" if h else f"{m:02d}:{s:02d}"


def _scaled(x: float) -> str:
  """Three digits and a metric prefix."""
  for prefix in ("", "k", "M", "G", "T", "P", "E", "Z"):
    if abs(x) < 999.5: return f"{x:.{2 if abs(x) < 9.995 else 1 if abs(x) < 99.95 else 0}f}{prefix}"
    x /= 1000
  return f"{x:.1f}Y"


def _width(s: str) -> int:
  from .helpers import ansilen
  return ansilen(s)


class tqdm(Generic[T]):
  """Shows on standard error how far a loop has come: `for x in tqdm(xs, desc="work"): ...`, or by hand with `update(n)`
  and a `with` block.

  `disable=None` is silent where standard error is no terminal; `rate` bounds the number of drawings per second;
  `unit_scale` writes 1.23k.
  """

  def __init__(self, iterable: Iterable[T] | None = None, desc: str = "", disable: bool | None = False,
               unit: str = "it", unit_scale: bool = False,
               total: int | None = None, rate: int = 100):
    self.iterable, self.unit, self.unit_scale, self.rate = iterable, unit, unit_scale, rate
    self.disable = not sys.stderr.isatty() if disable is None else disable
    if total is None: total = len(iterable) if hasattr(iterable, "__len__") else 0  # type: ignore[arg-type]
    self.t, self.n = total, 0   # steps in all (0: unknown) and done
    self.i, self.skip = -1, 1   # calls of update, and how many of them share one drawing
    self.st = time.perf_counter()
    self.set_description(desc)
    self.update(0)

  def __iter__(self) -> Iterator[T]:
    assert self.iterable is not None, "need an iterable to iterate"
    for item in self.iterable:
      yield item
      self.update(1)
    self.update(close=True)

  def __enter__(self) -> tqdm[T]: return self
  def __exit__(self, *exc: Any) -> None: self.update(close=True)

  def set_description(self, desc: str) -> None: self.desc = f"{desc}: " if desc else ""

  def update(self, n: int = 0, close: bool = False) -> None:
    """`n` more steps are done; `close` draws the last state and ends the line."""
    self.n += n
    self.i += 1
    if self.disable or (self.i % self.skip and not close): return
    elapsed = time.perf_counter() - self.st
    if self.i and elapsed and self.i / elapsed > self.rate: self.skip = max(int(self.i / elapsed / self.rate), 1)
    print("\r" + self._line(elapsed), end="\n" if close else "", file=sys.stderr, flush=True)

  def _line(self, elapsed: float) -> str:
    number = _scaled if self.unit_scale else str
    speed = self.n / elapsed if elapsed else 0
    shown_speed = "?" if not speed else _scaled(speed) if self.unit_scale else f"{speed:5.2f}"
    if not self.t: return f"{self.desc}{number(self.n)}{self.unit} [{_clock(elapsed)}, {shown_speed}{self.unit}/s]"
    left = _clock((self.t - self.n) / speed) if speed else "?"
    tail = f"| {number(self.n)}/{number(self.t)} [{_clock(elapsed)}<{left}, {shown_speed}{self.unit}/s]"
    head = f"{self.desc}{100 * self.n / self.t:3.0f}%|"
    room = max(shutil.get_terminal_size().columns - _width(head) - len(tail), 1)
    full, eighths = divmod(int(min(self.n / self.t, 1) * room * 8), 8)
    return head + ("█" * full + _PARTS[eighths].strip()).ljust(room) + tail

  @classmethod
  def write(cls, s: str) -> None:
    """Prints a line above the bar."""
    print(f"\r\033[K{s}", file=sys.stderr, flush=True)


def trange(n: int, **kwargs: Any) -> tqdm[int]:
  """tqdm over range(n)."""
  return tqdm(range(n), total=n, **kwargs)
