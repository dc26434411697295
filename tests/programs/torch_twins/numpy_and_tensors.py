import copy

import numpy as np
import torch
import torch.nn.functional as F
from common import initial, log, normal

names = {"layers.0": torch.nn.Linear(3, 6), "layers.2": torch.nn.LayerNorm(6), "layers.4": torch.nn.Linear(6, 2)}
net = torch.nn.Module()
net.a, net.b, net.c = names.values()
state = initial({f"{n}.{k}": v for n, m in names.items() for k, v in m.state_dict().items()})
for n, m in names.items():
    m.load_state_dict({k: torch.tensor(state[f"{n}.{k}"]) for k in m.state_dict()})
forward = lambda net, x: net.c(net.b(F.gelu(net.a(x), approximate="tanh")).relu()) * 0.5
opt = torch.optim.Adam(net.parameters(), lr=0.02)
weight, best, kept = net.a.weight, None, []
for i in range(8):
    x, y = torch.tensor(normal(10, 3, seed=i)), torch.tensor(normal(10, 2, seed=30 + i))
    opt.zero_grad()
    out = forward(net, x)
    loss = (out - y).square().mean(dim=1)
    rows = loss.tolist()
    log("rows", rows)
    picked = loss[torch.tensor(np.argsort(rows)[-5:].copy())].mean() * 1.5
    picked.backward()
    weight.grad.clamp_(-0.05, 0.05)
    opt.step()
    value = picked.item()
    log("loss", f"{value:.2f}")
    log("order", np.sort(rows).argsort())
    best = value if best is None else min(best, value)
    kept.append(out[0].tolist())
    if i == 3:
        seen = forward(net, x).tolist()
log("best", best)
log("from thread", seen)
log("copied stays", True)
log("pickled as copied", True)
log("kept outputs", kept)
log("weight", weight.tolist())
log("first row", net.c.weight[0].tolist())
log("rest", 1)
log("lengths", [6, 2, 18, 72])
log("half", weight.half().float().tolist())
log("bytes", 36)
