"""nn.parallelize and pipelines: in a world of one, and in two processes where there is an mpirun."""
import os, sys
import pytest
from tinygrad_cpp import Context, Tensor, distributed, dtypes, nn
from tinygrad_cpp.uop import Ops
from two_processes import needs_mpirun, run_in_two_processes


class Model:
  def __init__(self): self.hidden, self.out = nn.Linear(8, 16), nn.Linear(16, 4)
  def __call__(self, x): return self.out(self.hidden(x).relu())


class Gated:
  """Gate and hidden layer are one matrix."""
  def __init__(self): self.gate_up, self.w2 = nn.Linear(8, 32), nn.Linear(16, 4)
  def __call__(self, x):
    gate, hidden = self.gate_up(x).chunk(2, dim=-1)
    return self.w2(gate.silu() * hidden)


DIVISIONS = {"hidden.*": "column", "out.weight": "row"}
PLANS = [{}, {"zero": 1, "whole_below": 1}, {"zero": 2, "whole_below": 1}, {"zero": 3, "whole_below": 1}]


def losses(mesh=None, of=Model, **plan):
  """Losses of five steps; without a mesh those of one process."""
  Tensor.manual_seed(3)
  model = of()
  parallel = nn.parallelize(model, mesh, **plan) if mesh else None
  opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=0.01)
  if parallel: parallel.place_state(opt)
  x, y = (Tensor.arange(64).reshape(8, 8) % 7).float().contiguous(), (Tensor.arange(8) % 4).contiguous()
  out = []
  with Context(TRAINING=1):
    for _ in range(5):
      opt.zero_grad()
      loss = parallel(x).cross_entropy(parallel.batch(y)) if parallel else model(x).cross_entropy(y)
      (parallel or loss).backward(*([loss] if parallel else []))
      opt.step()
      out.append(loss.item())
  return out


def pipeline_losses(mesh):
  Tensor.manual_seed(3)
  model = Model()
  layers = [lambda x: model.hidden(x).relu(), model.out]
  first, last = nn.parallel.stage_layers(2, mesh)
  params = [p for layer in [model.hidden, model.out][first:last] for p in nn.state.get_parameters(layer)]
  opt = nn.optim.AdamW(params, lr=0.01)

  def stage(x):
    for f in layers[first:last]: x = f(x)
    return x

  pipeline = nn.parallel.Pipeline(stage, lambda h, y: h.cross_entropy(y), params, mesh, microbatches=2)
  x, y = (Tensor.arange(64).reshape(8, 8) % 7).float().contiguous(), (Tensor.arange(8) % 4).contiguous()
  out = []
  with Context(TRAINING=1):
    for _ in range(5):
      opt.zero_grad()
      out.append(pipeline.step(x, y).item())
      opt.step()
  return out


class Normed:
  """Statistics of features that are divided."""
  def __init__(self): self.hidden, self.bn, self.out = nn.Linear(8, 16), nn.BatchNorm(16), nn.Linear(16, 4)
  def __call__(self, x): return self.out(self.bn(self.hidden(x)).relu())


def check_checkpoints(folder):
  """Each stage saves and loads what it has."""
  layers = [nn.Linear(3, 3) for _ in range(3)]
  first, last = nn.parallel.stage_layers(3, distributed.Mesh({"pipe": -1}))
  own = {f"layers.{i}": layers[i] for i in range(first, last)}
  for i in range(first, last): layers[i].bias.assign(Tensor.full((3,), float(i))).realize()
  nn.state.save_sharded_checkpoint(folder, own, step=4)
  saved = nn.state.safe_load(folder)
  assert [saved[f"model.layers.{i}.bias"].tolist() for i in range(3)] == [[i] * 3 for i in range(3)]
  for i in range(first, last): layers[i].bias.assign(Tensor.zeros(3)).realize()
  assert nn.state.load_checkpoint(folder, own)[0] == 4
  for i in range(first, last): assert layers[i].bias.tolist() == [i] * 3
  with pytest.raises(KeyError, match="not in the model"): nn.state.load_checkpoint(folder, {"layers.0": layers[0]})
  distributed.barrier()


def check_combinations():
  mesh, n, me = distributed.Mesh({"data": -1}), distributed.size(), distributed.rank()
  x = (Tensor.arange(2 * n) + 10 * me).contiguous()
  for axes in "data", ["data"]:
    assert distributed.all_reduce(x, mesh, axes, Ops.MAX).tolist() == [10 * (n - 1) + i for i in range(2 * n)]
  with pytest.raises(TypeError): distributed.all_reduce(x, mesh, 3)
  own = distributed.reduce_scatter(x, mesh, "data", op=Ops.MAX)
  assert own.tolist() == [10 * (n - 1) + i + 2 * me for i in range(2)]


def check_statistics():
  tensor = distributed.Mesh({"tensor": -1})
  want = losses(of=Normed)
  assert losses(tensor, Normed, divisions=DIVISIONS) == pytest.approx(want, rel=1e-4)


def check_sync():
  """What several processes have whole is the first one's, or each one's own."""
  mesh, me = distributed.Mesh({"data": -1}), distributed.rank()
  for sync in True, False:
    layer = nn.Linear(2, 2)
    layer.weight.assign(Tensor.full((2, 2), me + 1.0)).realize()
    nn.parallelize(layer, mesh, sync=sync)
    assert layer.weight.to_local().tolist() == [[1.0 if sync else me + 1.0] * 2] * 2


def check_losses():
  want = losses()
  assert want[-1] < want[0]
  data, tensor = distributed.Mesh({"data": -1}), distributed.Mesh({"tensor": -1})
  for plan in PLANS: assert losses(data, **plan) == pytest.approx(want, rel=1e-5)
  assert losses(tensor, divisions=DIVISIONS) == pytest.approx(want, rel=1e-5)
  gated = losses(of=Gated)
  assert gated[-1] < gated[0]
  for divisions in None, {"gate_up.*": "halves", "w2.weight": "row"}:
    assert losses(tensor, Gated, divisions=divisions) == pytest.approx(gated, rel=1e-5)
  for divisions in None, {"gate_up.*": "halves"}:
    spec = nn.parallelize(Gated(), tensor, divisions=divisions).spec("gate_up.weight")
    assert spec[0] == ("tensor:2" if distributed.size() > 1 else "")
  assert pipeline_losses(distributed.Mesh({"pipe": -1})) == pytest.approx(want, rel=1e-5)


def test_losses_in_a_world_of_one(tmp_path):
  check_losses()
  check_statistics()
  check_checkpoints(tmp_path)
  check_combinations()
  check_sync()


@needs_mpirun
def test_losses_in_two_processes(tmp_path):
  assert run_in_two_processes(__file__, 200, tmp_path).count("of 2: equal") == 2


def test_weights_are_used_in_another_type():
  model, seen = Model(), []
  parallel = nn.parallelize(model, distributed.Mesh({"data": -1}), compute=dtypes.bfloat16)
  parallel.run(lambda: seen.append(model.out.weight.dtype))
  assert seen == [dtypes.bfloat16] and model.out.weight.dtype == dtypes.float32


def test_mistakes_are_errors():
  mesh = distributed.Mesh({"data": -1})
  with pytest.raises(ValueError, match="expected column, row, thirds, halves or whole"):
    nn.parallelize(Model(), mesh, divisions={"hidden.*": "diagonal"})
  with pytest.raises(ValueError, match="fits no name"):
    nn.parallelize(Model(), mesh, divisions={"inner.*": "row"})
  with pytest.raises(ValueError, match="expected 0 to 3"): nn.parallelize(Model(), mesh, zero=4)
  with pytest.raises(IndexError, match="does not have"): nn.parallelize(Model(), mesh).spec("x")


def test_fused_optimizers_have_no_state_to_divide():
  model = Model()
  parallel = nn.parallelize(model, distributed.Mesh({"data": -1}), zero=1)
  with pytest.raises(ValueError, match="got a fused optimizer"):
    parallel.place_state(nn.optim.AdamW(nn.state.get_parameters(model), fused=True))
  nn.parallelize(model, distributed.Mesh({"data": -1})).place_state(
    nn.optim.AdamW(nn.state.get_parameters(model), fused=True))


@needs_mpirun
def test_peer_errors_name_the_rank():
  printed = run_in_two_processes(__file__, 60, "--fail", fails=True)
  assert "rank 0: the error names rank 1" in printed


def fail():
  """What a program does in which another process fails: it ends with an exit code of its own."""
  try:
    distributed.barrier()
    if distributed.rank() == 1: distributed.fail("has seen a NaN")
    distributed.barrier()
  except distributed.PeerError as e:
    print(f"rank {distributed.rank()}: the error names rank {e.rank}", flush=True)
  os._exit(3)


if __name__ == "__main__":
  distributed.init()
  if "--fail" in sys.argv: fail()
  check_losses()
  check_statistics()
  check_checkpoints(sys.argv[1])
  check_combinations()
  check_sync()
  print(f"rank {distributed.rank()} of {distributed.size()}: equal")
