"""The default type is half for the whole program: layers, their gradients and an Adam step follow it, losses are
still right."""

import os

os.environ["DEFAULT_FLOAT"] = "HALF"
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(5, 8), Tensor.silu, nn.Linear(8, 1)]
log("dtype", str(net[0].weight.dtype).split(".")[-1])
load_state_dict(net, {k: Tensor(v, dtype=dtypes.half) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.02)
x, y = Tensor(normal(12, 5, seed=1), dtype=dtypes.half), Tensor(normal(12, 1, seed=2), dtype=dtypes.half)
with Context(TRAINING=1):
    for step in range(6):
        opt.zero_grad()
        loss = (x.sequential(net) - y).float().square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item(), rtol=1e-2)  # 11 bits
log("sum", float(Tensor.ones(3000).sum().item()))
log("weight", net[0].weight.float().numpy(), rtol=2e-2)
