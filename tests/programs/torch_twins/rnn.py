import numpy as np
import torch
from common import log, normal

values = [normal(2, 8, seed=1) / 2, normal(8, 8, seed=2) / 4, np.zeros(8, np.float32), normal(8, 1, seed=3) / 3]
wx, wh, b, wo = (torch.tensor(v, requires_grad=True) for v in values)
opt = torch.optim.Adam([wx, wh, b, wo], lr=0.02)
time = np.arange(40, dtype=np.float32)
series = torch.tensor(np.stack([np.sin(time / 3), np.cos(time / 5)], 1).astype(np.float32))
target = torch.tensor(np.sin(time / 3 + 0.5).astype(np.float32))
for epoch in range(2):
    h = torch.zeros(1, 8)
    for start in range(0, 40, 10):
        opt.zero_grad()
        h = h.detach()
        outs = []
        for t in range(start, start + 10):
            h = (series[t : t + 1] @ wx + h @ wh + b).tanh()
            outs.append(h @ wo)
        loss = (torch.cat(outs).flatten() - target[start : start + 10]).square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("state", h.tolist())
log("gradient", wh.grad.norm().item())
log("wh", wh.tolist())
