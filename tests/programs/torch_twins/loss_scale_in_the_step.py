import numpy as np
import torch
from common import log, normal

params = [torch.tensor(normal(6, 16, seed=1) * 0.4, requires_grad=True),
          torch.tensor(normal(16, 2, seed=2) * 0.4, requires_grad=True)]
sums = [torch.zeros_like(p) for p in params]
scale, good = 2.0**12, 0


def fake_quantise(x):
    step = x.abs().max().detach() / 15
    return x + ((x / step).round() * step - x).detach()


for i in range(9):
    losses = []
    for k in range(3):
        x = torch.tensor(normal(8, 6, seed=3 * i + k))
        y = torch.tensor(np.tanh(x.numpy()[:, :2]))
        h1, h2 = (p.to(torch.bfloat16).float() for p in params)
        loss = (fake_quantise((x @ h1).relu()) @ h2 - y).square().mean()
        for s, g in zip(sums, torch.autograd.grad(loss * scale, params)):
            s += g
        losses.append(loss.item())
    log("losses", losses)
    log("gradient", (sums[1] / scale).tolist())
    finite = all((s.abs() < 1e4).all().item() for s in sums)
    if finite:
        with torch.no_grad():
            for p, s in zip(params, sums):
                p -= (0.3 if i < 5 else 0.1) * s / (3 * scale)
    good = good + 1 if finite else 0
    scale = (scale * 2 if good % 2 == 0 else scale) if finite else scale / 4
    for s in sums:
        s.zero_()
    log("finite", finite)
    log("scale", scale)
log("good", good)
log("weight", params[0].tolist())
