"""Layers. Parameters are attributes, found by nn.state.get_parameters and get_state_dict; a layer is called with its
input."""
from __future__ import annotations
import math
from .. import _core
from ..dtype import dtypes, least_upper_dtype, least_upper_float
from ..helpers import TRAINING, flatten, make_tuple, prod
from ..tensor import Tensor
from . import optim, state, datasets, lr_scheduler, train, data, parallel  # noqa: F401
from .parallel import parallelize  # noqa: F401


def _uniform(bound: float, *shape: int) -> Tensor: return Tensor.uniform(*shape, low=-bound, high=bound).is_param_()
def _ones(*shape: int) -> Tensor: return Tensor.ones(*shape).contiguous().is_param_()
def _zeros(*shape: int) -> Tensor: return Tensor.zeros(*shape).contiguous().is_param_()
def _sizes(layer: object, **sizes: object) -> None:
  for name, n in sizes.items():
    if not isinstance(n, int) and (not hasattr(n, "__index__") or getattr(n, "shape", ())):
      raise TypeError(f"[{type(layer).__name__}] got an object of type {type(n).__name__} for {name}, expected an "
                      f"int: the layer makes its weights "
                      "itself")
def _input(layer: object, x: Tensor) -> Tensor:
  if x is None or isinstance(x,
                             (bool, int, float, str, list, tuple)) or (hasattr(x, "__array__")
                                 and not isinstance(x, Tensor)):
    hint = ": write Tensor(x)" if x is not None else ""
    raise TypeError(f"[{type(layer).__name__}] got an object of type {type(x).__name__}, expected a Tensor{hint}")
  return x
def _wide(x: Tensor) -> Tensor:
  """x in the type that statistics are computed in, and results until weight and bias are applied: float32 at least."""
  return x if x.dtype == dtypes.float64 else x.float()
def _rounded(y: Tensor, x: Tensor, weight: Tensor | None) -> Tensor:
  """y, which was computed of x and perhaps a weight, in the float type of both."""
  d = least_upper_float(x.dtype)
  return y.cast(d if weight is None else least_upper_dtype(d, weight.dtype))
def _over_channels(t: Tensor, x: Tensor) -> Tensor: return t.reshape(1, -1, *[1] * (x.ndim - 2))


class BatchNorm:
  """Normalizes every channel (axis 1) over batch and space: with the statistics of the batch in training mode
  (Context(TRAINING=1)), which also move the running ones, else with the running ones.
  https://arxiv.org/abs/1502.03167"""
  def __init__(self, sz: int, eps=1e-5, affine=True, track_running_stats=True, momentum=0.1):
    self.eps, self.track_running_stats, self.momentum = eps, track_running_stats, momentum
    self.weight: Tensor | None = _ones(sz) if affine else None
    self.bias: Tensor | None = _zeros(sz) if affine else None
    self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64).contiguous().is_param_(False)
    if track_running_stats:
      self.running_mean = Tensor.zeros(sz).contiguous().is_param_(False)
      self.running_var = Tensor.ones(sz).contiguous().is_param_(False)

  def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance to normalize x with."""
    if self.track_running_stats and not TRAINING: return self.running_mean, _over_channels(self.running_var, x)
    others = tuple(i for i in range(x.ndim) if i != 1)
    wide = _wide(x)
    mean = wide.mean(axis=others)
    # the variance does not depend on the mean to first order
    return mean, (wide - _over_channels(mean.detach(), x)).square().mean(axis=others)

  def __call__(self, x: Tensor) -> Tensor:
    mean, var = self.calc_stats(_input(self, x))
    if self.track_running_stats and TRAINING:
      n, m = x.numel(), self.momentum
      if isinstance(n, int) and n == x.shape[1]:
        raise _core.ShapeError(f"[BatchNorm] got an input of shape {x.shape}, whose channels have one value each: "
                               f"training needs more to estimate a "
                               "variance")
      if not isinstance(n, int) or n > 0:  # an empty batch says nothing
        for running, now in ((self.running_mean, m * mean.detach()),
                             (self.running_var, m * n / (n - x.shape[1]) * var.detach())):
          running.assign(((1 - m) * running + now).cast(running.dtype))
      self.num_batches_tracked.assign(self.num_batches_tracked + 1)
    y = x.batchnorm(self.weight, self.bias, mean, var.add(self.eps).rsqrt())
    return y if self.track_running_stats and not TRAINING else _rounded(y, x, self.weight)


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class Conv2d:
  """Convolution over the last axes, (batch, in, ...) -> (batch, out, ...): two of them for a number as kernel_size,
  else as many as it has sizes.
  padding: a number, one for each axis or side, or "same"."""
  def __init__(self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], stride=1,
               padding: int | tuple[int, ...] | str = 0,
               dilation=1, groups=1, bias=True):
    _sizes(self, in_channels=in_channels, out_channels=out_channels)
    if groups < 1 or in_channels % groups or out_channels % groups:
      raise ValueError(f"[{type(self).__name__}] got groups={groups}, expected a divisor of in_channels={in_channels} "
                       f"and out_channels={out_channels}")
    self.kernel_size = make_tuple(kernel_size, 2)
    if isinstance(padding, str):
      if padding.lower() != "same":
        raise ValueError(f"[Conv2d] got padding={padding!r}, expected a number, a tuple or 'same'")
      if any(s != 1 for s in make_tuple(stride, 1)):
        raise ValueError(f"[Conv2d] got padding='same' with stride={stride}, expected stride 1")
      missing = [d * (k - 1) for d, k in zip(make_tuple(dilation, len(self.kernel_size)), self.kernel_size)]
      padding = tuple(flatten((n // 2, n - n // 2) for n in reversed(missing)))
    self.stride, self.dilation, self.groups, self.padding = stride, dilation, groups, padding
    bound = 1 / math.sqrt(in_channels * prod(self.kernel_size))
    self.weight = _uniform(bound, out_channels, in_channels // groups, *self.kernel_size)
    self.bias: Tensor | None = _uniform(bound, out_channels) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    return _input(self, x).conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding)


def Conv1d(in_channels: int, out_channels: int, kernel_size: int, stride=1, padding: int | str = 0, dilation=1,
           groups=1, bias=True) -> Conv2d:
  """Convolution over the last axis."""
  return Conv2d(in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias)


class ConvTranspose2d(Conv2d):
  """Transposed convolution over the last axes: the gradient of a convolution as a layer of its own."""
  def __init__(self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], stride=1, padding=0,
               output_padding=0, dilation=1,
               groups=1, bias=True):
    super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
    self.weight = _uniform(1 / math.sqrt(in_channels * prod(self.kernel_size)), in_channels, out_channels // groups,
                           *self.kernel_size)
    self.output_padding = output_padding

  def __call__(self, x: Tensor) -> Tensor:
    return _input(self, x).conv_transpose2d(self.weight, self.bias, self.groups, self.stride, self.dilation,
                                            self.padding, self.output_padding)


def ConvTranspose1d(in_channels: int, out_channels: int, kernel_size: int, stride=1, padding=0, output_padding=0,
                    dilation=1, groups=1,
                    bias=True) -> ConvTranspose2d:
  """Transposed convolution over the last axis."""
  return ConvTranspose2d(in_channels, out_channels, (kernel_size,), stride, padding, output_padding, dilation, groups,
                         bias)


class Linear:
  """x @ weight.T + bias: (..., in) -> (..., out)."""
  def __init__(self, in_features: int, out_features: int, bias=True):
    _sizes(self, in_features=in_features, out_features=out_features)
    bound = 1 / math.sqrt(in_features)
    self.weight = _uniform(bound, out_features, in_features)
    self.bias: Tensor | None = _uniform(bound, out_features) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    size = self.weight.shape[1]
    if not _input(self, x).ndim or x.shape[-1] != size:
      raise _core.ShapeError(f"[Linear] got shape {x.shape}, expected (..., {size})")
    return x.linear(self.weight.transpose(), self.bias)


class GroupNorm:
  """Normalizes groups of neighbouring channels over the group and space. https://arxiv.org/abs/1803.08494"""
  def __init__(self, num_groups: int, num_channels: int, eps=1e-5, affine=True):
    self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
    self.weight: Tensor | None = _ones(num_channels) if affine else None
    self.bias: Tensor | None = _zeros(num_channels) if affine else None

  def __call__(self, x: Tensor) -> Tensor:
    y = _wide(_input(self, x)).reshape(x.shape[0], self.num_groups, -1).layernorm(eps=self.eps).reshape(x.shape)
    if self.weight is not None and self.bias is not None:
      y = y * _over_channels(self.weight, x) + _over_channels(self.bias, x)
    return _rounded(y, x, self.weight)


class InstanceNorm(GroupNorm):
  """Normalizes every channel of every sample over space. A sample may come without a batch, (channels, ...): an input
  of two axes, or one whose axis 1 has another size than the channels. https://arxiv.org/abs/1607.08022"""
  def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True):
    super().__init__(num_features, num_features, eps, affine)
    self.num_features = num_features

  def __call__(self, x: Tensor) -> Tensor:
    n = self.num_features
    one_sample = _input(self, x).ndim == 2 or (x.ndim > 2 and x.shape[1] != n and x.shape[0] == n)
    return super().__call__(x.unsqueeze(0)).squeeze(0) if one_sample else super().__call__(x)


class LayerNorm:
  """Normalizes over the last axes, whose sizes are normalized_shape. https://arxiv.org/abs/1607.06450"""
  def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True):
    self.normalized_shape: tuple[int, ...] = make_tuple(normalized_shape, 1)
    self.axis, self.eps = tuple(-1 - i for i in range(len(self.normalized_shape))), eps
    self.weight: Tensor | None = _ones(*self.normalized_shape) if elementwise_affine else None
    self.bias: Tensor | None = _zeros(*self.normalized_shape) if elementwise_affine else None

  def __call__(self, x: Tensor) -> Tensor:
    if self.normalized_shape != _input(self, x).shape[-len(self.normalized_shape):]:
      raise _core.ShapeError(f"[LayerNorm] got an input of shape {x.shape}, expected the last sizes to be "
                             f"{self.normalized_shape}")
    y = _wide(x).layernorm(eps=self.eps, axis=self.axis)
    if self.weight is not None and self.bias is not None: y = y * self.weight + self.bias
    return _rounded(y, x, self.weight)


class LayerNorm2d(LayerNorm):
  """LayerNorm over the channels of images (batch, channels, height, width)."""
  def __call__(self, x: Tensor) -> Tensor:
    return super().__call__(_input(self, x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
  """Divides by the root mean square of the last axis, computed in float32 (float64 in float64).
  https://arxiv.org/abs/1910.07467"""
  def __init__(self, dim: int, eps=1e-6, elementwise_affine=True):
    self.eps = eps
    self.weight = _ones(dim) if elementwise_affine else None

  def _norm(self, x: Tensor) -> Tensor: return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

  def __call__(self, x: Tensor) -> Tensor:
    y = self._norm(_wide(_input(self, x)))
    return _rounded(y if self.weight is None else y * self.weight, x, self.weight)


class Embedding:
  """Rows of a table by number: integers (...) -> (..., embed_size). Numbers outside of the table give zeros."""
  def __init__(self, vocab_size: int, embed_size: int):
    self.weight = Tensor.glorot_uniform(vocab_size, embed_size).is_param_()

  def __call__(self, idx: Tensor) -> Tensor:
    if not dtypes.is_int(_input(self, idx).dtype):
      raise TypeError(f"[Embedding] got indices of type {idx.dtype}, expected integers")
    return _core.nn_embedding(self.weight, idx)


class LSTMCell:
  """One step of a long short-term memory. Gates in the order input, forget, cell, output."""
  def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
    bound = 1 / math.sqrt(hidden_size)
    self.weight_ih = _uniform(bound, hidden_size * 4, input_size)
    self.weight_hh = _uniform(bound, hidden_size * 4, hidden_size)
    self.bias_ih: Tensor | None = _zeros(hidden_size * 4) if bias else None
    self.bias_hh: Tensor | None = _zeros(hidden_size * 4) if bias else None

  def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """x (batch, in) and the state (h, c), each (batch, hidden), give the next state; no state stands for zeros."""
    return _core.nn_lstm_cell(x, list(hc or ()), self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class GRUCell:
  """One step of a gated recurrent unit. Gates in the order reset, update, new."""
  def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
    bound = 1 / math.sqrt(hidden_size)
    self.weight_ih = _uniform(bound, hidden_size * 3, input_size)
    self.weight_hh = _uniform(bound, hidden_size * 3, hidden_size)
    self.bias_ih: Tensor | None = _zeros(hidden_size * 3) if bias else None
    self.bias_hh: Tensor | None = _zeros(hidden_size * 3) if bias else None

  def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
    return _core.nn_gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class _Recurrent:
  """Layers of cells over a sequence (time, batch, in). Weights have PyTorch's names: weight_ih_l0,
  weight_hh_l0_reverse, ..."""
  gates = 0

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
               batch_first: bool = False, dropout: float = 0.0,
               bidirectional: bool = False):
    self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
    self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
    bound, directions = 1 / math.sqrt(hidden_size), 2 if bidirectional else 1
    for layer in range(num_layers):
      for end in self._ends(layer):
        setattr(self, "weight_ih" + end,
                _uniform(bound, self.gates * hidden_size, directions * hidden_size if layer else input_size))
        setattr(self, "weight_hh" + end, _uniform(bound, self.gates * hidden_size, hidden_size))
        if bias:
          setattr(self, "bias_ih" + end, _uniform(bound, self.gates * hidden_size))
          setattr(self, "bias_hh" + end, _uniform(bound, self.gates * hidden_size))

  def _ends(self, layer: int) -> list[str]: return [f"_l{layer}", f"_l{layer}_reverse"][:2 if self.bidirectional else 1]

  def _run(self, x: Tensor, state: list[Tensor]):
    weights = [[getattr(self, name + end, None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
               for layer in range(self.num_layers) for end in self._ends(layer)]
    return _core.nn_recurrent(self.gates, x, state, weights, self.num_layers, self.batch_first, self.dropout,
                              self.bidirectional)


class LSTM(_Recurrent):
  """Layers of LSTM cells: gives the output (time, batch, directions * hidden) and the last states (h, c), each (layers
  * directions, batch, hidden)."""
  gates = 4

  def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    output, last = self._run(x, list(hc or ()))
    return output, tuple(last)


class GRU(_Recurrent):
  """Layers of GRU cells: gives the output (time, batch, directions * hidden) and the last states (layers * directions,
  batch, hidden)."""
  gates = 3

  def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
    output, last = self._run(x, [] if h is None else [h])
    return output, last[0]


class MultiheadAttention:
  """Attention of num_heads heads with projections of query, key, value and result. Masks: bool (True: may be seen) or
  added to the scores; key_mask (batch, keys) is False for keys nobody may see."""
  def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, batch_first: bool = True):
    if num_heads <= 0 or embed_dim % num_heads:
      raise ValueError(f"[MultiheadAttention] got {num_heads} heads for embed_dim {embed_dim}, expected a divisor")
    self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
    self.in_proj_weight = Tensor.glorot_uniform(3 * embed_dim, embed_dim).is_param_()
    self.in_proj_bias: Tensor | None = _zeros(3 * embed_dim) if bias else None
    self.out_proj = Linear(embed_dim, embed_dim, bias=False)
    if bias: self.out_proj.bias = _zeros(embed_dim)

  def __call__(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, mask: Tensor | None = None,
               key_mask: Tensor | None = None, is_causal: bool = False, need_weights: bool = False):
    """The output; with need_weights also the weights (batch, heads, queries, keys). Without key and value: those are
    the query."""
    key = query if key is None else key
    weights = [self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias]
    ret = _core.nn_attention(self.num_heads, query, key, key if value is None else value, weights, mask, key_mask,
                             is_causal, self.dropout,
                             self.batch_first)
    return ret if need_weights else ret[0]


class Dropout:
  """Zeroes elements with probability p in training mode and scales the others by 1 / (1 - p)."""
  def __init__(self, p: float = 0.5): self.p = p
  def __call__(self, x: Tensor) -> Tensor: return _input(self, x).dropout(self.p)
