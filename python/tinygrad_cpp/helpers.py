"""Small tools, settings, counters, caches and progress bars: what tinygrad.helpers has."""
from __future__ import annotations
import contextlib, copyreg, ctypes, functools, gc, importlib, inspect, itertools, math, operator, os
import pathlib, re, string, sys
import tempfile, time, types
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence, TypeVar

from . import _core
from . import _context
from ._context import *  # noqa: F403
from ._context import Context, ContextVar, DEBUG, DEV, NO_COLOR, Target, getenv
from ._cache import _ensure_downloads_dir, cache_dir, diskcache, diskcache_clear, diskcache_get, diskcache_put, fetch
from ._counters import GlobalCounters
from ._profile import ProfileEvent, ProfilePointEvent, ProfileRangeEvent, Profiling, Timing, TracingKey
from ._profile import cpu_events, cpu_profile, get_stacktrace, lines, perf_counter_us, printable, profile_marker
from ._progress import tqdm, trange

T = TypeVar("T")
U = TypeVar("U")

OSX, WIN = sys.platform == "darwin", sys.platform == "win32"
BASEDIR = pathlib.Path(__file__).parent
CHUNK_SIZE = 1 << 20  # bytes of a block of content-addressed storage
VERSION = 1           # of what is stored in the disk cache
CACHEDB: str = str(_context.CACHEDB.value or os.path.join(cache_dir, "cache.db"))


@dataclass(frozen=True)
class Metadata:
  """Which function of Tensor made something, and whether while going backward."""
  name: str
  backward: bool = False
  def __hash__(self) -> int: return hash(self.name)
  def __str__(self) -> str: return f"{self.name} bw" if self.backward else self.name


# *** sequences ***

def prod(x: Iterable[T]) -> T | int:
  """The product; 1 for nothing."""
  return functools.reduce(operator.mul, x, 1)

def dedup(x: Iterable[T]) -> list[T]:
  """Each item once, where it first appears."""
  return list(dict.fromkeys(x))

def argfix(*x: Any) -> tuple:
  """f(1, 2), f((1, 2)) and f([1, 2]) as (1, 2)."""
  if not x or type(x[0]) not in (tuple, list): return x
  if len(x) > 1: raise ValueError(f"bad arg {x}")
  return tuple(x[0])

def argsort(x: Any) -> Any: return type(x)(sorted(range(len(x)), key=lambda i: x[i]))
def all_same(items: Sequence) -> bool: return all(item == items[0] for item in items)
def all_int(t: Sequence[Any]) -> bool: return all(isinstance(s, int) for s in t)
def flatten(l: Iterable[Iterable[T]]) -> list[T]: return list(itertools.chain.from_iterable(l))

def fully_flatten(l: Any) -> list:
  """The leaves of nested sequences; a string is a leaf."""
  if isinstance(l, str) or not (hasattr(l, "__len__") and hasattr(l, "__getitem__")): return [l]
  if getattr(l, "shape", None) == (): return [l[()]]
  return flatten(fully_flatten(item) for item in l)

def get_shape(x: Any) -> tuple[int, ...]:
  """The shape of nested sequences. ValueError when they are ragged."""
  if isinstance(x, str) or not hasattr(x, "__len__") or getattr(x, "shape", None) == (): return ()
  inner = [get_shape(item) for item in x]
  if not all_same(inner): raise ValueError(f"inhomogeneous shape from {x}")
  return (len(inner), *(inner[0] if inner else ()))

def is_image_shape(shape: Any) -> bool: return shape is not None and len(shape) == 3 and shape[2] == 4
def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
  return (x,) * cnt if isinstance(x, int) else tuple(x)
def to_tuple(x: Any) -> tuple: return x if isinstance(x, tuple) else (x,)

def flat_to_grouped(padding: Sequence[T]) -> tuple[tuple[T, T], ...]:
  """(left, right, top, bottom, ...) as (..., (top, bottom), (left, right))."""
  return tuple((padding[i], padding[i + 1]) for i in range(len(padding) - 2, -1, -2))

def resolve_pool_pads(padding: int | Sequence[int], dims: int) -> Sequence[int]:
  """A padding given as one number, one per axis, or one per side, as one per side, last axis first."""
  if isinstance(padding, int): return [padding] * (2 * dims)
  if len(padding) == 2 * dims: return padding
  if len(padding) != dims:
    raise ValueError(f"Padding must be an int or a sequence of length {dims} or {2 * dims}, but got {padding=} with "
                     f"{dims=}.")
  return [p for p in reversed(padding) for _ in range(2)]

def merge_dicts(ds: Iterable[dict[T, U]]) -> dict[T, U]:
  """One dict. RuntimeError when a key has different values."""
  merged: dict = {}
  for d in ds:
    for k, v in d.items():
      if merged.setdefault(k, v) != v: raise RuntimeError(f"key {k!r} has different values: {merged[k]!r} and {v!r}")
  return merged

def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
  """(those for which fxn holds, the others)."""
  yes: list[T] = []
  no: list[T] = []
  for item in itr: (yes if fxn(item) else no).append(item)
  return yes, no

def unwrap(x: T | None) -> T:
  assert x is not None, "expected a value, got None"
  return x

def get_single_element(x: Sequence[T]) -> T:
  assert len(x) == 1, f"{x} must only have 1 element"
  return x[0]

def get_child(obj: Any, key: str) -> Any:
  """What a path such as "layers.0.weight" leads to, through attributes, lists and dicts."""
  for part in key.split("."):
    obj = obj[int(part)] if part.isnumeric() else obj[part] if isinstance(obj, dict) else getattr(obj, part)
  return obj

@functools.cache
def canonicalize_strides(shape: tuple, strides: tuple) -> tuple:
  """Strides of axes of size 1 as 0."""
  return tuple(0 if s == 1 else st for s, st in zip(shape, strides))

@functools.cache
def strides_for_shape(shape: tuple) -> tuple:
  """Strides in elements of a contiguous array; 0 for axes of size 1."""
  return canonicalize_strides(shape, tuple(prod(shape[i + 1:]) for i in range(len(shape))))

class count:
  """itertools.count that can be pickled."""
  def __init__(self, start: int = 0, step: int = 1): self.n, self.step = start, step
  def __iter__(self) -> count: return self
  def __next__(self) -> int:
    self.n += self.step
    return self.n - self.step


# *** numbers ***

def ceildiv(num: Any, amt: Any) -> Any:
  """num / amt rounded up. A symbolic num that is not negative takes a form in which all divisions round alike."""
  if hasattr(num, "vmin") and num.vmin >= 0 and (amt if isinstance(amt, int) else amt.vmin) > 0:
    return (num + amt - 1) // amt
  up = -(num // -amt)
  return int(up) if isinstance(up, float) else up

def round_up(num: int, amt: int) -> int: return (num + amt - 1) // amt * amt
def round_down(num: int, amt: int) -> int: return num // amt * amt
def next_power2(x: int) -> int: return 1 << (x - 1).bit_length() if x else 1

def cdiv(x: int, y: int) -> int:
  """Division as in C: towards zero. By zero: 0."""
  if y == 0: return 0
  q = abs(x) // abs(y)
  return -q if (x < 0) != (y < 0) else q
def cmod(x: int, y: int) -> int:
  """Remainder as in C: the sign of x."""
  return x - cdiv(x, y) * y
def floordiv(x: int, y: int) -> int: return x // y if y else 0
def floormod(x: int, y: int) -> int: return x % y if y else x

def lo32(x: Any) -> Any: return x & 0xFFFFFFFF
def hi32(x: Any) -> Any: return x >> 32
def data64(data: Any) -> tuple[Any, Any]: return hi32(data), lo32(data)
def data64_le(data: Any) -> tuple[Any, Any]: return lo32(data), hi32(data)
def to_be32(val: Any) -> Any: return (val & 0xFF) << 24 | (val & 0xFF00) << 8 | (val >> 8) & 0xFF00 | (val >> 24) & 0xFF
def to_be64(val: Any) -> Any: return to_be32(hi32(val)) | to_be32(lo32(val)) << 32
def getbits(value: int, start: int, end: int) -> int:
  """Bits start to end, both included."""
  return value >> start & ~(-1 << (end - start + 1))
def i2u(bits: int, value: int) -> int:
  """Two's complement of `bits` bits as an unsigned number."""
  return value + (1 << bits) if value < 0 else value
def polyN(x: Any, p: list[float]) -> Any:
  """The polynomial with coefficients p, highest first, at x: a number, a Tensor or a UOp."""
  return functools.reduce(lambda total, c: total * x + c, p, 0.0)


# *** text ***

_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ESCAPE = re.compile("\x1b\\[(?:K|.*?m)")

def colored(st: Any, color: str | None, background: bool = False) -> Any:
  """`st` in a colour for terminals; in capitals: the bright one. Nothing is added for None, or under NO_COLOR."""
  if color is None or NO_COLOR: return st
  code = 30 + _COLORS.index(color.lower()) + (60 if color.isupper() else 0) + (10 if background else 0)
  return f"\x1b[{code}m{st}\x1b[0m"
def colorize_float(x: float) -> str:
  return colored(f"{x:7.2f}x", "green" if x < 0.75 else "yellow" if x <= 1.15 else "red")
def ansistrip(s: str) -> str: return _ESCAPE.sub("", s)
def ansilen(s: str) -> int: return len(ansistrip(s))
def ansipad(s: str, w: int) -> str: return s + " " * (w - ansilen(s))
def time_to_str(t: float, w: int = 8) -> str:
  """Seconds in s, ms or us; at least ten of the unit."""
  for scale, unit in ((1, "s "), (1e3, "ms")):
    if t > 10 / scale: return f"{t * scale:{w}.2f}{unit}"
  return f"{t * 1e6:{w}.2f}us"
def size_to_str(s: int) -> str:
  for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
    if s >= unit: return f"{s / unit:.2f} {name}"
  return f"{s} B"
def pluralize(st: str, cnt: int) -> str: return f"{cnt} {st}" if cnt == 1 else f"{cnt} {st}s"
def stderr_log(msg: str) -> None: print(msg, end="", file=sys.stderr, flush=True)
def pad_bytes(b: bytes, align: int) -> bytes: return b + bytes(-len(b) % align)

def strip_parens(fst: str) -> str:
  """Without the parentheses around all of it."""
  if not (len(fst) >= 2 and fst[0] == "(" and fst[-1] == ")"): return fst
  depth = 0
  for c in fst[:-1]:
    depth += (c == "(") - (c == ")")
    if depth == 0: return fst  # the first one closes before the end
  return fst[1:-1] if depth == 1 else fst

def word_wrap(x: str, wrap: int = 80) -> str:
  """Breaks lines after `wrap` visible characters; colour codes take no room and are never cut."""
  out = []
  for line in x.split("\n"):
    start = pos = seen = 0
    while pos < len(line):
      if m := _ESCAPE.match(line, pos):
        pos = m.end()
        continue
      if seen == wrap:
        out.append(line[start:pos])
        start, seen = pos, 0
      pos, seen = pos + 1, seen + 1
    out.append(line[start:])
  return "\n".join(out)

@functools.cache
def to_function_name(s: str) -> str:
  """A name for C: other characters as their code in hexadecimal."""
  allowed = string.ascii_letters + string.digits + "_"
  return "".join(c if c in allowed else f"{ord(c):02X}" for c in ansistrip(s))


# *** memory ***

def from_mv(mv: memoryview, to_type: Any = ctypes.c_char) -> ctypes.Array:
  """A ctypes array over the memory of a writable view."""
  return (to_type * len(mv)).from_address(mv_address(mv))
def to_mv(ptr: int, sz: int) -> memoryview:
  """A view of `sz` bytes at an address."""
  return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B")
def mv_address(mv: Any) -> int: return ctypes.addressof(ctypes.c_char.from_buffer(mv))
def flat_mv(mv: memoryview) -> memoryview: return mv.cast("B", shape=(mv.nbytes,)) if len(mv) else mv
def to_char_p_p(options: list[bytes], to_type: Any = ctypes.c_char) -> Any:
  pointer = ctypes.POINTER(to_type)
  return (pointer * len(options))(*(ctypes.cast(ctypes.create_string_buffer(o), pointer) for o in options))


# *** the program and its surroundings ***

def temp(x: str, append_user: bool = False) -> str:
  """A path in the folder for temporary files."""
  import getpass
  return (pathlib.Path(tempfile.gettempdir()) / (f"{x}.{getpass.getuser()}" if append_user else x)).as_posix()

def system(cmd: str, **kwargs: Any) -> str:
  """What a command prints. RuntimeError with it when the command fails."""
  import subprocess
  start = time.perf_counter()
  try:
    out = subprocess.run(cmd.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
                         **kwargs).stdout.decode().strip()
  except subprocess.CalledProcessError as e:
    output = (e.output or b"").decode().strip()
    raise RuntimeError(f"system: '{cmd}' failed with exit code {e.returncode}\n{output}") from e
  if DEBUG >= 1: print(f"system: '{cmd}' returned {len(out)} bytes in {(time.perf_counter() - start) * 1e3:.2f} ms")
  return out

def cpu_objdump(lib: bytes, objdump_tool: str = "objdump") -> None:
  """Prints the machine code of an object file."""
  with tempfile.NamedTemporaryFile() as f:
    pathlib.Path(f.name).write_bytes(lib)
    print(system(f"{objdump_tool} -d {f.name}"))

def wait_cond(cb: Callable, *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = "") -> Any:
  """Calls until the result is `value`. TimeoutError when it takes too long."""
  end = time.perf_counter() + timeout_ms / 1e3
  got: Any = None
  while time.perf_counter() < end:
    if (got := cb(*args)) == value: return got
  raise TimeoutError(f"{msg}. Timed out after {timeout_ms} ms, condition not met: {got} != {value}")

def fromimport(mod: str, frm: str) -> Any: return getattr(importlib.import_module(mod), frm)
def panic(e: type[Exception] | None = None, *arg: Any) -> None: raise RuntimeError("PANIC!") if e is None else e(*arg)

def suppress_finalizing(func: Callable) -> Callable:
  """A function whose errors do not matter while the interpreter shuts down."""
  @functools.wraps(func)
  def wrapper(*args: Any, **kwargs: Any) -> Any:
    try: return func(*args, **kwargs)
    except (RuntimeError, AttributeError, TypeError, ImportError, OSError):
      if not sys.is_finalizing(): raise
  return wrapper

def select_by_name(candidates: Sequence[T], get_name: Callable[..., str], query: str, err_msg: str) -> list[T]:
  """The candidates of that name (all for ""). RuntimeError that suggests the nearest name."""
  if found := [c for c in candidates if query in ("", get_name(c))]: return found
  import difflib
  near = difflib.get_close_matches(query, [get_name(c) for c in candidates])
  raise RuntimeError(err_msg + (f", did you mean: {near[0]!r}?" if near else ""))

class disable_gc(contextlib.ContextDecorator):
  """No garbage collection inside of a block."""
  def __init__(self) -> None: self._before: list[bool] = []
  def __enter__(self) -> None:
    self._before.append(gc.isenabled())
    gc.disable()
  def __exit__(self, *exc: Any) -> None:
    if self._before.pop(): gc.enable()


# Code objects and modules can be pickled, so that captured functions can; methods of the extension too, as models hold
# them ([nn.Linear(3, 3), Tensor.relu]).
_CODE_FIELDS = ["co_" + {"codestring": "code", "constants": "consts"}.get(name, name)
                for name in inspect.signature(types.CodeType).parameters]
def _reconstruct_code(*args: Any) -> types.CodeType: return types.CodeType(*args)
copyreg.pickle(types.CodeType, lambda code: (_reconstruct_code, tuple(getattr(code, name) for name in _CODE_FIELDS)))
for _kind in (type(_core.env_get), type(_core.Tensor.relu)): copyreg.pickle(_kind, lambda f: f.__qualname__)  # by name
copyreg.pickle(type(_core.Tensor.relu.__get__(object())),
               lambda bound: (getattr, (bound.__self__, bound.__func__.__name__)))
copyreg.pickle(types.ModuleType, lambda module: (importlib.import_module, (module.__name__,)))
