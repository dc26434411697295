"""Nodes of the graph, patterns over them, tables of rules and the rewrite engine."""
from __future__ import annotations
import functools
from dataclasses import dataclass
from typing import Any, Callable, Iterable

from .. import _core
from .._core import PatternMatcher, UOp, UPat
from .._enums import AxisType, GroupOp, Ops, _Named
from ..dtype import AddrSpace, ConstFloat, DType, Invalid, InvalidType, dtypes  # noqa: F401
from ..helpers import ContextVar, argfix, to_function_name

# pylint: disable=protected-access
sint = Any  # a size: an integer or a symbolic one
Variable = UOp
TrackedPatternMatcher = PatternMatcher  # TRACK_MATCH_STATS counts the library's own tables
TRACK_MATCH_STATS, REWRITE_STACK_LIMIT = ContextVar._cache["TRACK_MATCH_STATS"], ContextVar._cache[
    "REWRITE_STACK_LIMIT"]


# *** arguments of nodes ***

@dataclass(frozen=True, order=True)
class ParamArg:
  """Of PARAM and BUFFER: the slot, the type, and for a variable (addrspace ALU) its name and bounds."""
  slot: int
  dtype: DType | None = None
  vmin_vmax: tuple[int, int] | None = None
  multiple_of: int | None = None
  name: str | None = None
  addrspace: AddrSpace | None = AddrSpace.GLOBAL  # type: ignore[valid-type]
  axis: int | None = None
  device: str | None = None
  volatile: bool = False


@dataclass(frozen=True)
class StageArg:
  """Of STAGE: where a value is stored."""
  addrspace: AddrSpace = AddrSpace.GLOBAL  # type: ignore[valid-type]
  device: str | None = None
  removable: bool = True


OptOps = _Named("OptOps", {name: i + 1 for i, name in enumerate(
  ("TC", "UPCAST", "UNROLL", "VECTOR", "LOCAL", "THREAD", "GROUP", "GROUPTOP", "NOLOCALS", "PADTO", "SWAP", "SPLIT",
   "STAGE", "STAGEWINDOW", "PACKED4"))}, module=__name__)


@dataclass(frozen=True, order=True)
class Opt:
  """One optimisation of a kernel."""
  op: OptOps  # type: ignore[valid-type]
  axis: int | None = None
  arg: int | None = None
  def __repr__(self) -> str: return f"Opt(op={self.op}, axis={self.axis}, arg={self.arg})"


@dataclass(frozen=True)
class KernelInfo:
  """Of a kernel's SINK: its name and optimisations. `opts_to_apply`: these and no others. `attention`: the scheduler's
  mark of a kernel that is computed in blocks of scores."""
  name: str = "test"
  axis_types: tuple = ()
  dont_use_locals: bool = False
  applied_opts: tuple = ()
  opts_to_apply: tuple | None = None
  estimates: Any = None
  beam: int = 0
  attention: bool = False
  @property
  def function_name(self) -> str: return to_function_name(self.name)


@dataclass(frozen=True)
class CallInfo:
  """Of FUNCTION and CALL: a name, whether its kernels stay apart from what is around, whether it has a gradient of its
  own (kept by the node)."""
  name: str | None = None
  precompile: bool = False
  precompile_backward: bool = False
  grad_fxn: bool | None = None
  aux: Any = None


_core.register_graph_types(Ops, AxisType, AddrSpace, Invalid, ParamArg, StageArg, KernelInfo, Opt, OptOps, ConstFloat,
                           CallInfo)


# *** rewriting ***

class BottomUpGate(Exception):
  """Raised by a rule that runs before the sources are visited: this node is done, do not go on to its sources."""


def graph_rewrite(sink: UOp, pm: PatternMatcher, ctx: Any = None, bottom_up: bool = False, name: str | None = None,
                  bpm: PatternMatcher | None = None,
                  walk: bool = False, enter_calls: bool = False) -> UOp:
  """Applies a table to all that `sink` depends on.

  Sources come first and results are rewritten again until no rule fires; `bottom_up` tries a node before its sources.
  `bpm` is a second table for that moment. `walk`: each node once, results are final. RuntimeError when rules run in a
  circle.
  """
  return _core.graph_rewrite(sink, pm, ctx, bottom_up, name, bpm, walk, enter_calls, BottomUpGate)


_substitute = PatternMatcher([(UPat(tuple(Ops), name="x"), lambda ctx, x: ctx.get(x))])
remove_all_tags = PatternMatcher([(UPat(GroupOp.All, name="x"),
                                   lambda x: None if x.tag is None else x.replace(tag=None))])


def rewrite_group(*args: Any, **kwargs: Any) -> Callable:
  """Decorates a function that rewrites; there for code that names its rewrites for a viewer."""
  return lambda func: func


# *** further members of UOp, in terms of the rest ***

def _unpickle(nodes: Iterable[tuple]) -> UOp:
  made: list[UOp] = []
  for op, dtype, src, arg, tag in nodes:
    if op is Ops.BUFFER and isinstance(arg, tuple) and arg[0] == "memory":
      made.append(_core._buffer_from_pickle(made[src[0]], dtype, *arg[1:]))
    else: made.append(UOp(op, dtype, tuple(made[i] for i in src), arg, tag))
  return made[-1]


_SIZES = {"reshape", "view", "expand", "shrink", "pad", "permute", "flip", "shrink_to", "pad_to", "repeat", "split",
          "chunk", "unflatten", "unfold",
          "roll"}


def _as_tensor(u: UOp) -> Any:
  from ..tensor import Tensor
  return Tensor(u)
def _as_uop(x: Any) -> Any:
  from ..tensor import Tensor
  if isinstance(x, Tensor): return x.uop
  return type(x)(map(_as_uop, x)) if isinstance(x, (tuple, list)) else x


class _More:
  """Methods and properties that become UOp's."""

  def substitute(self: UOp, dvars: dict[UOp, UOp], name: str | None = None, extra_pm: PatternMatcher | None = None,
                 walk: bool = False,
                 enter_calls: bool = False) -> UOp:
    """Every occurrence of the keys replaced by the values. `extra_pm`: rules that apply on the way."""
    if not dvars and extra_pm is None: return self
    table = _substitute if extra_pm is None else _substitute + extra_pm
    return graph_rewrite(self, table, dvars, bottom_up=True, walk=walk, enter_calls=enter_calls)

  def set(self: UOp, val: Any, end: Any = ()) -> UOp:  # pylint: disable=redefined-builtin
    """The buffer this points into, once the value has been stored (and the loops have ended)."""
    return self.src[0].after(self.store(val).end(*argfix(end)))

  def f(self: UOp, op: Ops, **kwargs: Any) -> UOp:
    return UOp(op, kwargs.pop("dtype", self.dtype), (self,), **kwargs)  # type: ignore[valid-type]
  def placeholder_like(self: UOp, slot: int, addrspace: Any = AddrSpace.GLOBAL) -> UOp:
    return UOp.placeholder(self.shape, self.dtype, slot, addrspace)
  def __getitem__(self: UOp, idx: Any) -> UOp:
    parts = idx if isinstance(idx, tuple) else (idx,)
    if all(isinstance(i, (int, UOp)) for i in parts): return self.index(*parts)
    return _as_tensor(self)[idx].uop
  __iter__ = None
  def __matmul__(self: UOp, x: UOp) -> UOp: return (_as_tensor(self) @ _as_tensor(x)).uop
  def __repr__(self: UOp) -> str:
    """Text that eval() turns into the node again; a node with several users is spelled once and has a name there."""
    users: dict[UOp, int] = {}
    order = list(self.toposort())
    for u in order:
      for s in u.src: users[s] = users.get(s, 0) + 1
    names: dict[UOp, str] = {}
    out: list[str] = []
    pending: list[tuple[Any, int]] = [(self, 0)]
    while pending:
      item, depth = pending.pop()
      if isinstance(item, str):
        out.append(item)
        continue
      if item in names:
        out.append(" " * depth + names[item])
        continue
      shared = ""
      if users.get(item, 0) > 1:
        names[item] = f"x{len(names)}"
        shared = f"{names[item]}:="
      tag = "" if item.tag is None else f", tag={item.tag!r}"
      out.append(f"{' ' * depth}{shared}UOp({item.op}, {item.dtype}, arg={item.arg!r}{tag}, src=(")
      pending.append(("))", 0))
      for s in reversed(item.src): pending += [(",", 0), (s, min(depth + 2, 60)), ("\n", 0)]
    return "".join(out)
  def __getattr__(self: UOp, name: str) -> Any:
    """Methods of Tensor that UOp does not have, for nodes of tensor graphs: the result as a UOp."""
    from ..tensor import Tensor
    if name.startswith("_") or not hasattr(Tensor, name):
      raise AttributeError(f"'UOp' object has no attribute {name!r}")
    value = getattr(_as_tensor(self), name)
    if not callable(value): return _as_uop(value)
    @functools.wraps(value)
    def method(*args: Any, **kwargs: Any) -> Any:
      own = lambda x: _as_tensor(x) if isinstance(x, UOp) and name not in _SIZES else x
      return _as_uop(value(*map(own, args), **{k: own(v) for k, v in kwargs.items()}))
    return method

  @property
  def ndim(self: UOp) -> int: return len(self.shape)
  @property
  def max_shape(self: UOp) -> tuple[int, ...]: return to_max_shape(self.shape)
  @property
  def without_after(self: UOp) -> UOp: return self.src[0] if self.op is Ops.AFTER else self
  @property
  def buf_uop(self: UOp) -> UOp: return self.base
  @property
  def buffer(self: UOp) -> Any:
    """The memory behind a node. RuntimeError when there is none."""
    found = self.realized
    if found is None: raise RuntimeError(f"{self.op} has no buffer: realize the tensor first")
    return found
  @property
  def realized(self: UOp) -> Any:
    """The memory behind a node if it has been computed, else None."""
    from ..device import Buffer
    native = _core.uop_buffer(self)
    return None if native is None or not native.is_allocated() else Buffer._of(native)
  @property
  def is_realized(self: UOp) -> bool:
    if self.op in (Ops.UNSHARD, Ops.MSTACK): return all(s.is_realized for s in self.src)
    return self.realized is not None

  @staticmethod
  def new_buffer(device: str, size: int, dtype: DType, num: int | None = None) -> UOp:
    """A BUFFER with memory of its own."""
    from ..tensor import Tensor
    return Tensor.empty(size, dtype=dtype, device=device).uop


for _name, _value in vars(_More).items():
  if not _name.startswith("__") or _name in ("__getitem__", "__getattr__", "__iter__", "__matmul__", "__repr__"):
    setattr(UOp, _name, _value)


# *** functions ***

def resolve(x: UOp | bool, default: bool = True) -> bool:
  """The truth of a condition where it is known, else `default`."""
  if isinstance(x, bool): return x
  assert x.dtype == dtypes.bool, "UOp in resolve must be bool"
  simple = x.simplify()
  return bool(simple.vmin) if simple.vmin == simple.vmax else default


def _extreme(lst: tuple, symbolic: Callable, plain: Callable) -> Any:
  items = sorted(argfix(*lst), key=lambda x: not isinstance(x, UOp))
  return functools.reduce(symbolic, items).ssimplify() if isinstance(items[0], UOp) else plain(items)


def smax(*lst: Any) -> Any:
  """The maximum of integers and symbolic sizes."""
  return _extreme(lst, UOp.maximum, max)
def smin(*lst: Any) -> Any:
  """The least of numbers and symbolic sizes."""
  return _extreme(lst, UOp.minimum, min)
def srender(x: Any) -> str: return x.render() if isinstance(x, UOp) else str(x)
def ssimplify(x: Any) -> Any: return x.ssimplify() if isinstance(x, UOp) else x
def sym_infer(uop: Any, var_vals: dict[str, int]) -> Any:
  """The value of a size for values of its variables, by name."""
  return uop.sym_infer(var_vals) if isinstance(uop, UOp) else uop
def to_max_shape(shape: Iterable) -> tuple[int, ...]:
  return tuple(int(s.vmax) if isinstance(s, UOp) else s for s in shape)
def sint_to_uop(x: Any, dtype: DType = dtypes.weakint) -> UOp: return UOp.const(x, dtype)
def identity_element(op: Ops, dt: DType) -> Any:  # type: ignore[valid-type]
  """What does not change the result of a reduction."""
  if op is Ops.MAX: return False if dt == dtypes.bool else dt.min
  return {Ops.ADD: 0, Ops.MUL: 1}[op]
def exec_alu(op: Ops, dtype: DType, operands: Any, truncate_output: bool = True) -> Any:  # type: ignore[valid-type]
  """What an operation gives on numbers."""
  if any(o is Invalid for o in operands) and op is not Ops.WHERE: return Invalid
  return UOp._exec_alu(op, dtype, tuple(operands)) if truncate_output else UOp._exec_alu(op, dtypes.weakint,
      tuple(operands))
def consumer_map_from_toposort(lst: Iterable[UOp]) -> dict[UOp, dict[UOp, None]]:
  """The users of each node."""
  users: dict[UOp, dict[UOp, None]] = {}
  for u in lst:
    users[u] = {}
    for s in u.src: users[s][u] = None
  return users
def print_uops(uops: Iterable[UOp]) -> None:
  """A program, one node a line."""
  place = {u: i for i, u in enumerate(uops)}
  for u, i in place.items():
    src = [s.val if s.op is Ops.CONST else place.get(s, "--") for s in u.src]
    print(f"{i:4d} {u.op!s:20s}: {u.dtype!s:20s} {src!s:32s} {u.arg}")
