"""TinyJit: a function that is run twice, recorded the second time, and from then on replayed. The machine is C++
(docs/jit.md); here is what Python values are its inputs and results."""
import collections
import functools
import hashlib
import json
import os
import sys
import types
import weakref

from .. import _core
from .._core import JitError  # noqa: F401
from ..dtype import DType
from ..tensor import Tensor
from ..uop.ops import Ops, UOp


class GraphException(Exception):
  """A device could not take a batch of kernels as a graph."""


class MultiGraphRunner:
  """The class of graphs that hold launches of several devices. No device here has graphs: launches are replayed one by
  one."""


def graph_class(dev):
  """The class that makes graphs of a device's kernels; None: it has none."""
  return dev.graph.func if isinstance(dev.graph, functools.partial) else dev.graph


class _Objects:
  """Numbers for the objects a function is called with: the same number for one that is the same, or made of the same
  tensors and equal values."""

  def __init__(self):
    self._known: list = []  # (reference, description, what the description speaks of)

  def number(self, x) -> int:
    for i, (reference, _, _) in enumerate(self._known):
      if reference() is x: return i
    held: list = []
    description = _described(x, held, {}, [_MOST_PARTS])
    for i, (_, known, _) in enumerate(self._known):
      if known == description: return i
    self._known.append((_reference(x), description, held))
    return len(self._known) - 1


_MOST_PARTS = 20000  # of an object that is compared by its parts


def _described(x, held: list, seen: dict, left: list):
  """An object by its parts: tensors and what cannot be looked into by identity (`held` keeps them, so that their
  addresses stay theirs), other values by what they are."""
  if x is None or isinstance(x, (bool, int, float, complex, str, bytes, range, DType)): return repr(x)
  if id(x) in seen: return ("again", seen[id(x)])
  seen[id(x)] = len(seen)
  left[0] -= 1
  def parts(items): return tuple(_described(y, held, seen, left) for y in items)
  if left[0] > 0 and not isinstance(x, (Tensor, type, types.ModuleType)):
    if isinstance(x, (list, tuple, collections.deque)): return (type(x), parts(x))
    if isinstance(x, dict):
      return (type(x), tuple((_described(k, held, seen, left), _described(v, held, seen, left)) for k, v in x.items()))
    if isinstance(x, types.FunctionType):
      return ("function", x.__code__, parts(c.cell_contents for c in x.__closure__ or ()), parts(x.__defaults__ or ()))
    if isinstance(x, types.MethodType):
      return ("method", _described(x.__func__, held, seen, left), _described(x.__self__, held, seen, left))
    if type(x).__module__ != "builtins" and hasattr(x, "__dict__"):
      slots = [(n, getattr(x, n)) for c in type(x).__mro__ for n in getattr(c, "__slots__", ()) if hasattr(x, n)
               and n not in ("__dict__", "__weakref__")]
      return (type(x), tuple((k, _described(v, held, seen, left)) for k, v in [*vars(x).items(), *slots]))
  held.append(x)
  return ("object", id(x))


class _Places:
  """Where a function finds the tensors a capture uses besides its arguments, and the objects they are in: attributes,
  items, names of closures and modules. A call that finds others there has a capture of its own. They are compared by
  identity; tensors are not kept."""

  def __init__(self):
    self._dicts, self._lists, self._cells = [], [], []        # containers with a key
    self._numbers: dict[tuple, tuple[int, list]] = {(): (0, [])}  # by what was found, with references to it
    self._next, self._gone = 1, []

  def number(self) -> int:
    """The number of what is there now: the same for the same tensors."""
    if self._gone:  # another tensor may get the address
      self._gone.clear()
      self._numbers = {k: v for k, v in self._numbers.items() if all(r() is not None for r in v[1])}
    found = self._found()
    known = self._numbers.get(tuple(map(id, found)))
    if known is not None: return known[0]
    self._next += 1
    return self._set(found, self._next - 1)

  def note(self, roots: list, core, number: int):
    """Adds where the function finds what the latest capture uses. What is there after that call has its number."""
    known = {(id(c), k) for c, k in (*self._dicts, *self._lists, *self._cells)}
    before = len(known)
    for place, t in _tensors_within(roots):
      if (id(place[0]), place[1]) in known or not core.uses(t): continue
      while place is not None and (id(place[0]), place[1]) not in known:  # those of a known one are known
        container, key, place = place
        known.add((id(container), key))
        is_of = self._dicts if isinstance(container, dict) else self._lists if isinstance(container, list) else self._cells
        is_of.append((container, key))
    if len(known) > before: self._numbers.clear()
    self._set(self._found(), number)

  def _set(self, found: list, number: int) -> int:
    references = [self._reference(x) for x in found]
    self._numbers[tuple(map(id, found))] = number, references
    return number

  def _reference(self, x):
    """A function that gives what was found, or None when it is gone."""
    try:
      return weakref.ref(x, self._gone.append)
    except TypeError:  # lists, dicts, numbers: kept
      return lambda: (x,)

  def _found(self) -> list:
    return [*[d.get(k) for d, k in self._dicts], *[x[i] if i < len(x) else None for x, i in self._lists],
            *[_content_of(c) for c, _ in self._cells]]


def _content_of(cell):
  try:
    return cell.cell_contents
  except ValueError:  # empty
    return None


def _tensors_within(roots: list):
  """The tensors that objects and functions lead to, each with the place it is found at: container, key, and the place
  of what the container belongs to."""
  pending, seen = collections.deque((None, x) for x in roots), set()
  while pending and len(seen) < _MOST_PARTS:
    place, x = pending.popleft()
    if isinstance(x, Tensor):
      if place is not None: yield place, x
      continue
    if id(x) in seen or isinstance(x, (type, types.ModuleType)): continue
    seen.add(id(x))
    if isinstance(x, types.FunctionType):
      pending.extend(((c, 0, place), _content_of(c)) for c in x.__closure__ or ())
      named = [n for n in x.__code__.co_names if n in x.__globals__]
      pending.extend(((x.__globals__, n, place), x.__globals__[n]) for n in named)
      pending.extend((place, y) for y in x.__defaults__ or ())
    elif isinstance(x, types.MethodType): pending.extend((place, y) for y in (x.__func__, x.__self__))
    elif isinstance(x, functools.partial): pending.extend((place, y) for y in (x.func, x.args, x.keywords))
    elif isinstance(x, dict): pending.extend(((x, k, place), y) for k, y in x.items())
    elif isinstance(x, list): pending.extend(((x, i, place), y) for i, y in enumerate(x))
    elif isinstance(x, tuple): pending.extend((place, y) for y in x)
    elif type(x).__module__ != "builtins" and hasattr(x, "__dict__"): pending.append((place, vars(x)))


class _Arguments:
  """What a call passes: tensors, bound variables, and the rest as text: another text is another capture. Containers are
  walked to any depth; values are compared by what they are, arrays by their contents, other objects by the tensors and
  values they are made of when they are first seen (a model's weights are no inputs)."""

  def __init__(self, args, kwargs, objects: _Objects):
    self.tensors, self.names, self.variables, self.constants = [], [], [], []
    self._objects = objects
    self._number: dict[int, int] = {}
    if not kwargs and all(type(x) is Tensor for x in args):
      self.tensors, self.names = list(args), _argument_names(len(args))
      return
    named = list(enumerate(args)) + sorted(kwargs.items())
    for key, x in named:  # the same one twice is an error among these, and one input in containers
      if isinstance(x, Tensor):
        self._number.setdefault(id(x), len(self.tensors))
        self.tensors.append(x)
        self.names.append(f"argument {key}")
    for key, x in named:
      if not isinstance(x, Tensor):
        self.constants.append((f"argument {key}", self._text(x, f"argument {key}")))

  def _text(self, x, name: str) -> str:
    if isinstance(x, Tensor):
      if id(x) not in self._number:
        self._number[id(x)] = len(self.tensors)
        self.tensors.append(x)
        self.names.append(name)
      return f"tensor {self._number[id(x)]}"
    if isinstance(x, UOp):
      self.variables.append(x)
      return f"variable {_unbound(x)}"
    if x is None or isinstance(x, (bool, int, float, complex, str, bytes, range, DType)):
      return repr(x)
    if isinstance(x, (tuple, list, collections.deque)):
      items = ", ".join(self._text(y, f"{name}[{i}]") for i, y in enumerate(x))
      return f"({items})" if isinstance(x, tuple) else f"[{items}]"
    if isinstance(x, dict):
      return "{" + ", ".join(f"{self._text(k, name)}: {self._text(y, f'{name}[{k!r}]')}" for k, y in x.items()) + "}"
    if isinstance(x, slice):
      return f"slice{self._text((x.start, x.stop, x.step), name)}"
    if isinstance(x, (set, frozenset)):
      if any(isinstance(y, (Tensor, UOp)) for y in x):
        raise JitError(f"[jit] got a set of tensors as {name}, whose order is not defined: pass a list or a dict")
      return f"{type(x).__name__}{{{', '.join(sorted(self._text(y, name) for y in x))}}}"
    if isinstance(x, types.MethodType):
      return f"method {self._text(x.__func__, name)} of {self._text(x.__self__, name)}"
    if (content := self._content(x, name)) is not None:
      return content
    return f"<{type(x).__name__} object {self._objects.number(x)}>"

  def _content(self, x, name: str) -> str | None:
    """Arrays and other memory: type, shape and a hash of the bytes."""
    if getattr(getattr(x, "dtype", None), "hasobject", False):
      return f"array{x.shape} of {self._text(x.tolist(), name)}"
    dtype = getattr(x, "dtype", "")
    try:
      if type(x).__module__ == "numpy" and hasattr(x, "tobytes"):
        shape, data = x.shape, x.tobytes()
      else:
        view = memoryview(x)
        shape, data, dtype = view.shape, view.tobytes(), view.format
    except (TypeError, ValueError, BufferError):
      return None
    digest = repr(data) if len(data) <= 8 else hashlib.sha256(data).hexdigest()[:32]
    return f"{type(x).__name__} {dtype}{list(shape or ())} {digest}"


@functools.cache
def _argument_names(n: int) -> list[str]:
  return [f"argument {i}" for i in range(n)]


def _unbound(x: UOp) -> str:
  """An expression of variables without the values they are bound to."""
  try:
    return str(x.unbind_all()[0].render())
  except (AttributeError, RuntimeError, ValueError, TypeError):
    return "expression"


def _reference(x):
  """Gives the object while it lives. One that cannot be referenced weakly is kept: a new one must not get its
  address."""
  try:
    return weakref.ref(x)
  except TypeError:
    return lambda: x


def _tensors_of(ret, strict: bool) -> list:
  """The tensors of a result, in order; what else is in it is an error when it would be frozen."""
  if ret is None:
    return []
  if isinstance(ret, Tensor):
    return [ret]
  if isinstance(ret, (tuple, list, dict)):
    return [t for x in (ret.values() if isinstance(ret, dict) else ret) for t in _tensors_of(x, strict)]
  if strict:
    raise JitError(f"JIT return contains non-Tensor value of type {type(ret).__name__}: it would be that of the "
                   f"captured call forever")
  from ..nn.state import get_parameters
  return get_parameters(ret)


class _Hole(types.SimpleNamespace):
  """Stands for a tensor in a remembered result."""


def _shape_of(ret):
  if isinstance(ret, Tensor):
    return _Hole()
  if isinstance(ret, dict):
    return {k: _shape_of(v) for k, v in ret.items()}
  if isinstance(ret, (tuple, list)):
    items = [_shape_of(x) for x in ret]
    return type(ret)(*items) if hasattr(ret, "_fields") else type(ret)(items)
  return ret


def _filled(shape, tensors):
  if isinstance(shape, _Hole):
    return next(tensors)
  if isinstance(shape, dict):
    return {k: _filled(v, tensors) for k, v in shape.items()}
  if isinstance(shape, (tuple, list)):
    items = [_filled(x, tensors) for x in shape]
    return type(shape)(*items) if hasattr(shape, "_fields") else type(shape)(items)
  return shape


def _spelled(shape):
  """A remembered result as JSON: what other languages and processes can read."""
  if shape is None or isinstance(shape, _Hole):
    return None if shape is None else "tensor"
  if isinstance(shape, dict):
    return {"dict": [[k, _spelled(v)] for k, v in shape.items()]}
  return {"list" if isinstance(shape, list) else "tuple": [_spelled(x) for x in shape]}


def _unspelled(x):
  if x is None or x == "tensor":
    return _Hole() if x else None
  kind, items = next(iter(x.items()))
  if kind == "dict":
    return {k: _unspelled(v) for k, v in items}
  return (list if kind == "list" else tuple)(_unspelled(v) for v in items)


class _Node:
  """A step of what was recorded: compared by identity, as nodes are."""

  def __init__(self, op, src=(), arg=None): self.op, self.src, self.arg = op, src, arg

  def __repr__(self): return f"{self.op}({self.arg!r}, {len(self.src)} sources)"

  def toposort(self, gate=None) -> dict:
    """The nodes it leads to, sources first; of those that `gate` refuses the sources are left out."""
    out: dict = {}
    pending = [(self, False)]
    while pending:
      node, done = pending.pop()
      if node in out: continue
      if done or (gate is not None and not gate(node)):
        out[node] = None
        continue
      pending.append((node, True))
      pending.extend((s, False) for s in reversed(node.src))
    return out


def _call_node(name: str) -> _Node:
  """A launch: what it runs is its first source. A kernel has its name; its own sources stand in the places of
  tinygrad's, but the text, the third, is empty: programs that have been compiled do not keep it."""
  if name == "copy": return _Node(Ops.CALL, (_Node(Ops.COPY, (), types.SimpleNamespace(name=name)),))
  parts = (_Node(Ops.SINK), _Node(Ops.LINEAR), _Node(Ops.SOURCE, (), ""), _Node(Ops.BINARY))
  return _Node(Ops.CALL, (_Node(Ops.PROGRAM, parts, types.SimpleNamespace(name=name)),))


class CapturedJit:
  """What was recorded."""

  def __init__(self, core, names, shape=None):
    self._core, self._names, self._shape = core, names, shape

  def __reduce__(self):
    return _unpickle_captured, (self._core.dump(), self._names, self._shape)

  @property
  def expected_names(self) -> list:
    """The arguments that are tensors: places of positional ones, names of the others."""
    names = [n.removeprefix("argument ") for n in self._names if "[" not in n]
    return [int(n) if n.isdecimal() else n for n in names]

  @property
  def expected_input_info(self) -> list:
    """(view, variables, type, device) of each tensor it is called with: the shape is that of the view."""
    return [(view, tuple(view.variables()), view.dtype, view.device) for view in self._core.input_patterns]

  @property
  def linear(self) -> _Node:
    """The list of launches: `src`, each with what it runs as its first source."""
    return _Node(Ops.LINEAR, tuple(map(_call_node, self._core.kernel_names)))

  def free_intermediates(self):
    self._core.free_intermediates()


def _unpickle_captured(data, names, shape):
  return CapturedJit(_core._parse_jit(data), names, shape)


def _unpickle_jit(captured, prune):
  return TinyJit(None, captured, prune)


class TinyJit:
  """`TinyJit(f)`, `@TinyJit` or `@TinyJit(prune=True)`: the first call runs f, the second records what it runs, later
  ones replay the record with other tensors and bound variables. `prune`: kernels that depend on no argument and nothing
  that is written run once, at capture. On methods every instance has a record of its own."""

  def __new__(cls, fxn=None, captured=None, prune: bool = False):
    if fxn is None and captured is None: return lambda f: cls(f, prune=prune)
    return super().__new__(cls)

  def __init__(self, fxn=None, captured=None, prune: bool = False):
    if fxn is not None and not callable(fxn):
      raise TypeError(f"[TinyJit] got an object of type {type(fxn).__name__}, expected a function: write TinyJit(f), "
                      f"not TinyJit(f(x))")
    self.fxn, self.prune, self.cnt, self._shape = fxn, prune, 0, None
    self._name = captured._core.name if fxn is None else getattr(fxn, "__qualname__", None) or type(fxn).__name__
    self._core = _core._JitCore(self._name, prune) if fxn is not None else captured._core
    self._names, self._instances = [], None
    self._objects, self._places = _Objects(), _Places()
    self._shapes: dict[int, object] = {}  # results without their tensors, by capture
    if fxn is None:
      self.cnt, self._shape, self._names = 2, captured._shape, captured._names
    if fxn is not None:
      functools.update_wrapper(self, fxn, updated=())

  @property
  def captured(self):
    return CapturedJit(self._core, self._names, self._shape) if self._core.captured else None

  def __reduce__(self):
    if not self._core.captured:
      raise JitError(f"[pickle] got {self._name} before it was captured, "
                     "expected a function that has been called twice")
    return _unpickle_jit, (self.captured, self.prune)

  def save(self, path, state=None):
    """Writes what was captured to a file, weights included; `load_jit`, here and in C++, gives a function that replays
    it. Tensors of `state`, a dict, are stored by name only."""
    note = json.dumps({"result": _spelled(self._shape)}) if self._core.captured else ""
    self._core.save(os.fspath(path), list((state or {}).items()), note)

  def reset(self):
    """Forgets the record: the next call runs the function."""
    assert self.fxn is not None, "can't reset without function"
    self._core.reset()
    self.cnt, self._shape, self._shapes, self._objects, self._places = 0, None, {}, _Objects(), _Places()

  def __get__(self, obj, objtype=None):
    if obj is None:
      return self
    if self._instances is None:
      self._instances = weakref.WeakKeyDictionary()
    try:
      jit = self._instances.get(obj)
      if jit is None:
        jit = self._instances[obj] = TinyJit(self.fxn, prune=self.prune)
    except TypeError:  # neither hashable nor weakly referenced: one record for all
      jit = self
    return functools.partial(jit.__call__, obj)

  def __call__(self, *args, **kwargs):
    if _core._jit_capturing(): return self._call_inside(args, kwargs)
    given = _Arguments(args, kwargs, self._objects)
    tensors, names, variables, constants = given.tensors, given.names, given.variables, given.constants
    if self._core.captured and len(tensors) < len(self._names):
      self._name_missing_tensor(args, kwargs, names)
    strict = self.cnt > 0 and _core._jit_on()
    ret, ran = None, False

    def body():
      nonlocal ret, ran
      ret, ran = self.fxn(*args, **kwargs), True
      found = _tensors_of(ret, strict)
      # Held by the result, by this list and by the call that asks: more means that others see the tensor too.
      return found, [sys.getrefcount(found[i]) > 3 for i in range(len(found))]

    if self.fxn is None:  # identities of another process mean nothing here
      constants = [(k, v) for k, v in constants if "<" not in v]
    else:
      reached = self._places.number()
      constants.append(("the tensors it reaches", str(reached)))
    out, capture = self._core.call(tensors, names, variables, constants, body)
    if _core._jit_on():
      self.cnt += 1
    if not ran:
      shape = self._shapes.get(capture, self._shape)
      if shape is _Hole:  # C++ saved it: its results, in order
        return out[0] if len(out) == 1 else tuple(out)
      return _filled(shape, iter(out))
    if self._core.captured:
      if capture not in self._shapes: self._places.note([self.fxn, args, kwargs], self._core, reached)
      self._shape, self._names = _shape_of(ret), names
      self._shapes[capture] = self._shape
      if len(out) == len(_tensors_of(ret, False)) and isinstance(ret, (Tensor, tuple, list, dict)):
        return _filled(self._shape, iter(out))
    return ret

  def _call_inside(self, args, kwargs):
    """Runs the function as a part of the one that is being captured, which a first call is: it records nothing."""
    if self.cnt > 0 or self.fxn is None:
      raise JitError(f"having TinyJit inside another TinyJit is not supported: {self._name} is called by a function "
                     f"that is being captured")
    self.cnt += 1
    return self.fxn(*args, **kwargs)

  def _name_missing_tensor(self, args, kwargs, names):
    for key, x in [*enumerate(args), *kwargs.items()]:
      if (name := f"argument {key}") in self._names and name not in names:
        write = "Tensor(x)" if hasattr(x, "__array__") or isinstance(x, (int, float, list)) else "a Tensor"
        raise JitError(f"[jit] got an object of type {type(x).__name__} as {name} of {self._name}, which was captured "
                       f"with a Tensor there: "
                       f"pass {write}")


def load_jit(path, state=None) -> TinyJit:
  """A captured function from a file that `TinyJit.save` or C++'s save_jit wrote, for this processor. `state`: the
  tensors stored by name only."""
  core, note = _core._load_jit(os.fspath(path), list((state or {}).items()))
  shape = _unspelled(json.loads(note)["result"]) if note.startswith('{"result"') else _Hole
  return TinyJit(None, CapturedJit(core, core.input_names, shape))
