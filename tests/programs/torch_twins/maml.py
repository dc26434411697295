import numpy as np
import torch
from common import log, normal

values = [normal(1, 10, seed=1), normal(10, seed=2), normal(10, 1, seed=3) * np.float32(0.3), np.zeros(1, np.float32)]
params = [torch.tensor(v, requires_grad=True) for v in values]


def net(p, x):
    return (x @ p[0] + p[1]).tanh() @ p[2] + p[3]


opt = torch.optim.SGD(params, lr=0.05)
grid = np.linspace(-3, 3, 10, dtype=np.float32)[:, None]
for step in range(4):
    opt.zero_grad()
    outer = torch.tensor(0.0)
    for task in range(3):
        amplitude, phase = 0.5 + task, 0.3 * step + task
        x = torch.tensor(grid)
        y = torch.tensor(amplitude * np.sin(grid + phase, dtype=np.float32))
        fast = params
        for _ in range(2):
            inner = (net(fast, x[::2]) - y[::2]).square().mean()
            log("inner", inner.item())
            fast = [p - 0.05 * g for p, g in zip(fast, torch.autograd.grad(inner, fast, create_graph=True))]
        outer = outer + (net(fast, x[1::2]) - y[1::2]).square().mean()
    log("outer", outer.item())
    outer.backward()
    log("meta gradient", params[2].grad.flatten().tolist())
    opt.step()
log("params", params[0].tolist())
