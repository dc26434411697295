"""A physics-informed net for u'' = -u: second derivatives to the input inside of the loss, boundary values,
residuals printed."""

import numpy as np
from common import initial, log
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(1, 10), Tensor.tanh, nn.Linear(10, 10), Tensor.tanh, nn.Linear(10, 1)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.02)
points = Tensor(np.linspace(0, 3, 12, dtype=np.float32)[:, None]).realize()
start = Tensor([[0.0]]).realize()
with Context(TRAINING=1):
    for step in range(5):
        opt.zero_grad()
        u = points.sequential(net)
        (du,) = u.sum().gradient(points)
        (ddu,) = du.sum().gradient(points)
        residual = ddu + u
        log("residual", residual.abs().max().item())
        u0 = start.sequential(net)
        (du0,) = u0.sum().gradient(start)
        loss = residual.square().mean() + u0.square().sum() + (du0 - 1).square().sum()
        log("loss", loss.item())
        loss.backward()
        log("gradient", net[2].weight.grad.square().sum().sqrt().item())
        opt.step()
log("u", points.sequential(net).numpy())
