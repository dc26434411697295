"""Models on several processes: docs/distributed.md."""
from __future__ import annotations
from typing import Any, Callable
from .._core import ValueError  # noqa: A004
from .._core.distributed import Mesh
from .._core.parallel import ParallelState, Pipeline, stage_layers  # noqa: F401
from ..dtype import DType
from ..tensor import Tensor
from .optim import Optimizer, OptimizerGroup
from .state import get_state_dict


class Parallel:
  """A model on a mesh: called as the model is, with batches that all processes have or that batch() placed."""
  def __init__(self, model: Any, state: ParallelState):
    self.model, self.state = model, state

  def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    placed = self.batch(x)
    return self.run(lambda: self.model(placed, *args, **kwargs))

  def run(self, f: Callable[[], Any]) -> Any:
    """Calls f with the weights as the forward pass uses them: gathered, of the type to compute in."""
    return self.state.run(f)

  def batch(self, whole: Tensor) -> Tensor:
    """Places a batch that all processes have: each keeps its rows, of a sequence its part."""
    return self.state.batch(whole)

  def batch_of(self, rows: Tensor) -> Tensor:
    """Places the rows that this process has of a batch: a tensor of the rows of all."""
    return self.state.batch_of(rows)

  def backward(self, loss: Tensor) -> Tensor:
    """Adds gradients as Tensor.backward; from stage 2 on each process keeps its slices of them."""
    return self.state.backward(loss)

  def spec(self, name: str) -> list[str]:
    """The axis of the mesh for each axis of a tensor of the state, "" for none, as it is kept between steps."""
    return self.state.spec(name)

  def place_state(self, optimizer: Optimizer) -> None:
    """Divides the optimizer's state, which is of the model's weights: from stage 1 on."""
    if isinstance(optimizer, OptimizerGroup):
      for o in optimizer.optimizers: self.place_state(o)
      return
    if self.state.zero and optimizer.fused:
      raise ValueError("[parallelize] got a fused optimizer, whose state is one tensor, with zero = "
                       f"{self.state.zero}, expected fused=False: state for each weight")
    others = [v for k, v in vars(optimizer).items() if k not in ("params", "buffers")]
    lists = [v for v in others if isinstance(v, list) and len(v) == len(optimizer.params)]
    for i, weight in enumerate(optimizer.params):
      self.state.place_state_of(weight, [v[i] for v in lists if isinstance(v[i], Tensor)])


def parallelize(model: Any, mesh: Mesh, *, data: str = "data", tensor: str = "tensor", zero: int = 0,
                divisions: dict[str, str] | None = None, sequence: bool = False, compute: DType | None = None,
                whole_below: int = 1024, heads: int = 0, kv_heads: int = 0, sync: bool = True) -> Parallel:
  """Divides a model among the processes of a mesh.

  data, tensor: the axes of the mesh along which batches and layers are divided; a mesh need not have them. zero: what
  else is divided along data: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 weights too (FSDP). divisions:
  patterns of names of the state, in which * is any text, and "column", "row", "thirds" (of queries, keys and values in
  one matrix), "halves" (of gate and up in one matrix) or "whole"; without any, the names that transformers usually have
  are known. sequence: axis 1 of batches is divided along tensor. compute: type of the weights in the forward pass.
  whole_below: tensors of fewer elements are not divided along data. heads, kv_heads: of attention, which must be
  multiples of the processes along tensor; 0: not told. sync: what several processes along data and tensor have whole
  begins as what the first of them has; False: nothing is sent, all have it alike already."""
  plan = {"data": data, "tensor": tensor, "zero": zero, "divisions": divisions, "sequence": sequence,
          "compute": compute, "whole_below": whole_below, "heads": heads, "kv_heads": kv_heads,
          "sync": sync}
  return Parallel(model, ParallelState(get_state_dict(model), mesh, plan))
