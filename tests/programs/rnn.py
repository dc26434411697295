"""A recurrent net by hand, unrolled in Python, its state carried on detached from one stretch of the sequence to
the next."""

import numpy as np
from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

wx, wh, b = Tensor(normal(2, 8, seed=1) / 2), Tensor(normal(8, 8, seed=2) / 4), Tensor.zeros(8)
wo = Tensor(normal(8, 1, seed=3) / 3)
opt = nn.optim.Adam([wx, wh, b, wo], lr=0.02)
time = np.arange(40, dtype=np.float32)
series = np.stack([np.sin(time / 3), np.cos(time / 5)], 1).astype(np.float32)
target = np.sin(time / 3 + 0.5).astype(np.float32)
with Context(TRAINING=1):
    for epoch in range(2):
        h = Tensor.zeros(1, 8)
        for start in range(0, 40, 10):
            opt.zero_grad()
            h = h.detach()
            outs = []
            for t in range(start, start + 10):
                h = (Tensor(series[t : t + 1]) @ wx + h @ wh + b).tanh()
                outs.append(h @ wo)
            loss = (Tensor.cat(*outs).flatten() - Tensor(target[start : start + 10])).square().mean()
            loss.backward()
            opt.step()
            log("loss", loss.item())
            log("state", h.numpy())
log("gradient", wh.grad.square().sum().sqrt().item())
log("wh", wh.numpy())
