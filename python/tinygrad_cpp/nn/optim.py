"""Optimizers. They step in training mode: `with Context(TRAINING=1): ...` or Tensor.train()."""
from __future__ import annotations
import itertools
import math
from .. import _core
from ..dtype import DType, dtypes, least_upper_dtype
from ..helpers import FUSE_OPTIM, TRAINING, dedup, flatten, getenv
from ..tensor import Tensor


def _check_number(name: str, what: str, value: float):
  if not 0 <= value < math.inf: raise ValueError(f"[{name}] got {what} = {value}, expected a finite number, 0 or more")


class Optimizer:
  """Base of all optimizers. A subclass defines _step(params, grads), which returns what to subtract from each parameter
  and the state to compute.
  lr is a tensor. A number or a tensor that is put in its place is assigned to it, so that captured steps see it.
  Tensors with is_param_(False) are only computed along with each step."""
  def __init__(self, params: list[Tensor], lr: float, device=None, fused=FUSE_OPTIM):
    name = getattr(self, "name", type(self).__name__)
    if not isinstance(lr, (int, float)): raise TypeError(f"[{name}] got lr = {lr!r}, expected a number")
    _check_number(name, "lr", lr)
    if isinstance(params, (Tensor, str)) or not hasattr(params, "__iter__"):
      kind = f"the class {params.__name__}" if isinstance(params,
                                                          type) else f"an object of type {type(params).__name__}"
      write = "[tensor]" if isinstance(params, Tensor) else "nn.state.get_parameters(model)"
      raise TypeError(f"[{name}] got {kind}, expected a list of tensors: write {name}({write})")
    params = list(params)
    for i, x in enumerate(params):
      if not isinstance(x, Tensor):
        raise TypeError(f"[{name}] got an object of type {type(x).__name__} as parameter {i}, expected a Tensor")
    self.params: list[Tensor] = dedup(x for x in params if x.is_param)
    if not self.params:
      raise _core.ValueError(f"[{name}] got {'no tensor' if not params else 'only tensors with is_param_(False)'}, "
                             f"expected at least one to "
                             "train: optimizer must have at least one param, as from nn.state.get_parameters(model)")
    self.buffers: list[Tensor] = dedup(x for x in params if not x.is_param)
    # leaves from now on: what they were computed from is not trained through them
    for x in self.params: x.is_param_(True)
    self.device = device or self.params[0].device
    self.param_dtype = getattr(dtypes, getenv("OPTIM_DTYPE", "float32"))
    self.fused = fused
    lr_dtype = least_upper_dtype(_core.default_float(), dtypes.float32)
    self.lr = self._number(lr if getenv("CONST_LR") else [lr], lr_dtype)
    if self.fused: self.pos_params = list(itertools.accumulate(self.params, lambda at, p: at + p.numel(), initial=0))

  def __setattr__(self, name: str, value):
    if name == "lr" and isinstance(vars(self).get("lr"), Tensor): self._assign_lr(value)
    else: super().__setattr__(name, value)

  def _assign_lr(self, value):
    name = getattr(self, "name", type(self).__name__)
    if isinstance(value, (int, float)): _check_number(name, "lr", value)
    elif not isinstance(value, Tensor): raise TypeError(f"[{name}] got lr = {value!r}, expected a number or a tensor")
    else: value = value.cast(self.lr.dtype).to(self.lr.device)
    self.lr.assign(value)

  def _number(self, value, dtype: DType) -> Tensor:
    """A number that the steps use, where the parameters are: whole on each of several devices."""
    first = self.params[0]
    if not isinstance(self.device, tuple) or self.device != first.device:
      return Tensor(value, device=self.device, dtype=dtype).is_param_(False)
    there = Tensor(value, dtype=dtype).shard_like(first.detach().sum())
    return there.contiguous().is_param_(False).realize()

  def _new_optim_param(self) -> list[Tensor]:
    if isinstance(self.device, tuple) and not self.fused:  # sharded as the parameters are
      return [Tensor.zeros_like(t, dtype=self.param_dtype).contiguous().is_param_(False) for t in self.params]
    shapes = [(self.pos_params[-1],)] if self.fused else [t.shape for t in self.params]
    return [Tensor.zeros(s, dtype=self.param_dtype, device=self.device).contiguous().is_param_(False) for s in shapes]

  def zero_grad(self):
    """Forgets the gradients of all parameters."""
    for param in self.params: param.grad = None

  def step(self):
    """One step, computed at once."""
    Tensor.realize(*self.schedule_step())

  def schedule_step(self) -> list[Tensor]:
    """Assigns one step and returns the tensors that have to be realized for it."""
    name = getattr(self, "name", type(self).__name__)
    if not TRAINING:
      raise RuntimeError(f"[{name}] got a step with TRAINING={TRAINING.value}, expected training mode: put the "
                         f"forward pass and step() under "
                         "`with Context(TRAINING=1):`")
    for i, t in enumerate(self.params):
      if t.grad is None:
        raise _core.GradientError(f"[{name}] parameter {i} of shape {t.shape} has no gradient: the loss does not "
                                  f"depend on it, or backward() was not "
                                  "called since zero_grad()")
    if self.fused:
      # one flat tensor of everything; each gradient is computed by itself before
      flat = [Tensor.cat(*[t.flatten() for t in self.params],
                         dim=0)], [Tensor.cat(*[t.grad.contiguous().flatten() for t in self.params], dim=0)]
      out, extra = self._step(*flat)
      updates = [out[0][at:at + t.numel()].reshape(t.shape) for at, t in zip(self.pos_params, self.params)]
    else:
      updates, extra = self._step(self.params, [t.grad for t in self.params])
    for t, up in zip(self.params, updates): t.assign(self._apply_update(t, up))
    return extra + self.params + self.buffers

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    raise NotImplementedError
  def _apply_update(self, t: Tensor, up: Tensor) -> Tensor: return t.detach() - up.shard_like(t).cast(t.dtype)


class OptimizerGroup(Optimizer):
  """Several optimizers that step together."""
  def __init__(self, *optimizers: Optimizer):
    self.optimizers = optimizers
    self.params, self.buffers = flatten(o.params for o in optimizers), flatten(o.buffers for o in optimizers)
  def __getitem__(self, i): return self.optimizers[i]
  def __setattr__(self, name: str, value):
    if name != "lr": return super().__setattr__(name, value)
    for o in self.optimizers: o.lr = value
  def zero_grad(self):
    for o in self.optimizers: o.zero_grad()
  def schedule_step(self) -> list[Tensor]: return flatten(o.schedule_step() for o in self.optimizers)


class LARS(Optimizer):
  """Momentum with a rate for each layer. https://arxiv.org/abs/1708.03888"""
  def __init__(self, params: list[Tensor], lr=0.001, momentum=0.9, weight_decay=1e-4, ns_steps=0, ns_coefficients=None,
               nesterov=False, classic=True,
               pre_wd=True, tcoef=0.001, device=None, fused=FUSE_OPTIM):
    _check_number(getattr(self, "name", type(self).__name__), "momentum", momentum)
    super().__init__(params, lr, device, fused)
    self.momentum, self.wd, self.ns_steps, self.ns_coefficients = momentum, weight_decay, ns_steps, ns_coefficients
    self.nesterov, self.classic, self.pre_wd, self.tcoef = nesterov, classic, pre_wd, tcoef
    self.b = self._new_optim_param() if self.momentum else []

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    return _core.nn_lars_updates(params, grads, self.b, self.lr, self.momentum, self.wd, self.ns_steps,
                                 list(self.ns_coefficients or ()),
                                 bool(self.nesterov), bool(self.classic), bool(self.pre_wd), self.tcoef), self.b


def _named(name: str, kind: type, *args, **kwargs) -> Optimizer:
  optimizer = kind.__new__(kind)
  optimizer.name = name  # errors speak of what the user called
  optimizer.__init__(*args, **kwargs)
  return optimizer


def SGD(params: list[Tensor], lr=0.001, momentum=0.0, weight_decay=0.0, nesterov=False, classic=False, device=None,
        fused=FUSE_OPTIM):
  """Stochastic gradient descent. classic: the rate goes into the momentum, so that a later change of it acts on new
  gradients only."""
  return _named("SGD", LARS, params, lr, momentum, weight_decay, 0, None, nesterov, classic=classic, pre_wd=True,
                tcoef=0.0, device=device,
                fused=fused)


def Muon(params: list[Tensor], lr=0.001, momentum=0.95, weight_decay=0.1, ns_steps=5,
         ns_coefficients=(3.4445, -4.775, 2.0315), nesterov=True,
         device=None, fused=FUSE_OPTIM):
  """Momentum whose update is made orthogonal by Newton-Schulz iterations. https://arxiv.org/abs/2502.16982"""
  if fused:
    raise _core.ValueError("[Muon] got fused, expected fused=False (FUSE_OPTIM=0): the iteration works on single "
                           "matrices")
  return _named("Muon", LARS, params, lr, momentum, weight_decay, ns_steps, ns_coefficients, nesterov, classic=False,
                pre_wd=False, tcoef=0.0,
                device=device, fused=fused)


class LAMB(Optimizer):
  """Adam's update with a rate for each layer. https://arxiv.org/abs/1904.00962"""
  def __init__(self, params: list[Tensor], lr=0.001, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.0, adam=False,
               device=None, fused=FUSE_OPTIM):
    name = getattr(self, "name", type(self).__name__)
    _check_number(name, "weight_decay", weight_decay)
    super().__init__(params, lr, device, fused)
    self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
    self.b1_t, self.b2_t = (self._number([1.0], dtypes.float32) for _ in range(2))
    self.m, self.v = self._new_optim_param(), self._new_optim_param()

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    up = _core.nn_lamb_updates(params, grads, self.m, self.v, self.b1_t, self.b2_t, self.lr, self.b1, self.b2, self.eps,
                               self.wd, bool(self.adam))
    return up, [self.b1_t, self.b2_t] + self.m + self.v


def AdamW(params: list[Tensor], lr=0.001, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01, device=None, fused=FUSE_OPTIM):
  """Adam with decoupled weight decay. https://arxiv.org/abs/1711.05101"""
  return _named("AdamW", LAMB, params, lr, b1, b2, eps, weight_decay, adam=True, device=device, fused=fused)


def Adam(params: list[Tensor], lr=0.001, b1=0.9, b2=0.999, eps=1e-8, device=None, fused=FUSE_OPTIM):
  """https://arxiv.org/abs/1412.6980"""
  return _named("Adam", LAMB, params, lr, b1, b2, eps, 0.0, adam=True, device=device, fused=fused)


class RMSprop(Optimizer):
  """Divides gradients by a moving root mean square of them."""
  def __init__(self, params: list[Tensor], lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0,
               centered=False, device=None,
               fused=FUSE_OPTIM):
    super().__init__(params, lr, device, fused)
    self.alpha, self.eps, self.wd, self.momentum, self.centered = alpha, eps, weight_decay, momentum, centered
    self.square = self._new_optim_param()
    self.mean = self._new_optim_param() if centered else []
    self.b = self._new_optim_param() if momentum else []

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    up = _core.nn_rmsprop_updates(params, grads, self.square, self.mean, self.b, self.lr, self.alpha, self.eps, self.wd,
                                  self.momentum)
    return up, self.square + self.mean + self.b
