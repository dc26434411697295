"""function: a call that is traced into one node, realized and differentiated as its body."""
import functools

from . import _core
from .tensor import Tensor
from .uop.ops import UOp


def _arguments(x, out, seen):
  """Tensors and UOps in the arguments, and in what they hold: lists, tuples, dicts, attributes."""
  stack = [x]
  while stack:
    x = stack.pop()
    if isinstance(x, (Tensor, UOp)):
      out.append(x)
    elif isinstance(x, (list, tuple)):
      stack.extend(reversed(x))
    elif isinstance(x, dict):
      stack.extend(reversed(list(x.values())))
    elif hasattr(x, "__dict__") and not isinstance(x, type) and id(x) not in seen:
      seen.add(id(x))
      stack.extend(reversed(list(x.__dict__.values())))


class _function:
  depth = 0

  def __init__(self, fxn, *, precompile, precompile_backward, allow_implicit, grad_fxn):
    self.fxn, self.precompile, self.precompile_backward = fxn, precompile, precompile_backward
    self.allow_implicit, self.grad_fxn = allow_implicit, grad_fxn

  def __get__(self, obj, objtype=None):
    return functools.partial(self.__call__, obj) if obj is not None else self

  def __call__(self, *args, **kwargs):
    found = []
    _arguments((args, kwargs), found, set())
    inputs = [_core._uop_of(x) for x in found]  # as they are now: the body may assign to them
    _function.depth += 1
    try:
      ret = self.fxn(*args, **kwargs)
    finally:
      _function.depth -= 1
    single = isinstance(ret, Tensor)
    if not single and not (isinstance(ret, tuple) and all(isinstance(x, Tensor) for x in ret)):
      raise RuntimeError(f"function return type {type(ret)} not supported")
    name = getattr(self.fxn, "__qualname__", None) or type(self.fxn).__qualname__
    out = _core._make_function(inputs, [ret] if single else list(ret), name, self.precompile, self.precompile_backward,
                               self.allow_implicit,
                               self.grad_fxn)
    return out[0] if single else tuple(out)


def function(fxn=None, *, precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = False,
             grad_fxn=None):
  """`@function` or `@function(precompile=True)`: the body is traced; tensors it uses without getting them need
  `allow_implicit=True`. With `precompile` its arguments and results are stored. `grad_fxn(*gradients, call)` gives the
  gradients of the arguments."""
  options = dict(precompile=precompile, precompile_backward=precompile_backward, allow_implicit=allow_implicit,
                 grad_fxn=grad_fxn)
  return _function(fxn, **options) if fxn is not None else lambda f: _function(f, **options)


def _call(self, *lst, fxn, grad_fxn=None) -> Tensor:
  """The body `fxn`, a Tensor or UOp over `as_param(i)`, on this tensor and others. `grad_fxn(grad, call)` gives the
  gradients of the arguments."""
  return _core._call([self, *lst], fxn, grad_fxn)


def _custom_kernel(self, *lst, fxn, grad_fxn=None) -> list:
  """The tensors after a kernel written in UOps: `fxn` gets one UOp per tensor and returns a SINK."""
  return _core._custom_kernel([self, *lst], fxn, grad_fxn)


Tensor.call, Tensor.custom_kernel = _call, _custom_kernel
