"""Jitted steps whose arguments are more than tensors: dicts and configuration objects made per call, a step
counter, the optimizer itself."""

from dataclasses import dataclass

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


@dataclass
class Config:
    smoothing: float
    name: str


net = [nn.Linear(4, 7), Tensor.relu, nn.Linear(7, 2)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
a, b = nn.optim.SGD(get_parameters(net[0]), lr=0.1), nn.optim.SGD(get_parameters(net[2]), lr=0.05)


@TinyJit
def step(optimizer, batch, config, info):
    optimizer.zero_grad()
    loss = (batch["x"].sequential(net) - batch["y"]).square().mean() * config.smoothing
    loss.backward()
    optimizer.step()
    return {"loss": loss.realize(), "norm": net[0].weight.square().sum().realize()}


with Context(TRAINING=1):
    for i in range(7):
        batch = {"x": Tensor(normal(6, 4, seed=i)).realize(), "y": Tensor(normal(6, 2, seed=20 + i)).realize()}
        out = step(nn.optim.OptimizerGroup(a, b), batch, Config(0.9, f"run {i}"), {"epoch": i, "note": f"step {i}"})
        log("loss", out["loss"].item())
        log("norm", out["norm"].item())
log("weight", net[2].weight.numpy())
