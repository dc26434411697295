"""Model-agnostic meta-learning: inner steps with gradient(), the outer gradient goes through them; inner losses
are printed."""

import numpy as np
from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

params = [
    Tensor(normal(1, 10, seed=1)),
    Tensor(normal(10, seed=2)),
    Tensor(normal(10, 1, seed=3) * np.float32(0.3)),
    Tensor(np.zeros(1, np.float32)),
]


def net(p, x):
    return (x @ p[0] + p[1]).tanh() @ p[2] + p[3]


opt = nn.optim.SGD(params, lr=0.05)
grid = np.linspace(-3, 3, 10, dtype=np.float32)[:, None]
with Context(TRAINING=1):
    for step in range(4):
        opt.zero_grad()
        outer = Tensor(0.0)
        for task in range(3):
            amplitude, phase = 0.5 + task, 0.3 * step + task
            train_x, test_x = Tensor(grid[::2]), Tensor(grid[1::2])
            train_y = Tensor(amplitude * np.sin(grid[::2] + phase, dtype=np.float32))
            test_y = Tensor(amplitude * np.sin(grid[1::2] + phase, dtype=np.float32))
            fast = params
            for _ in range(2):
                inner = (net(fast, train_x) - train_y).square().mean()
                log("inner", inner.item())
                fast = [p - 0.05 * g for p, g in zip(fast, inner.gradient(*fast))]
            outer = outer + (net(fast, test_x) - test_y).square().mean()
        log("outer", outer.item())
        outer.backward()
        log("meta gradient", params[2].grad.flatten().tolist())
        opt.step()
log("params", params[0].numpy())
