import numpy as np
import torch
from common import log, normal, uniform

lengths = np.array([5, 3, 1, 4])
valid = np.arange(5)[None] < lengths[:, None]
mask = torch.tensor(valid)
x = torch.tensor(np.where(valid[..., None], normal(4, 5, 3, seed=1), 0))
log("means", (x.sum(1) / mask.sum(1, keepdim=True)).tolist())
log("largest", torch.where(mask.unsqueeze(2), x, -float("inf")).max(1).values.tolist())
q, k, v = (torch.tensor(normal(3, 4, seed=s), requires_grad=True) for s in (2, 3, 4))
opt = torch.optim.SGD([q, k, v], lr=0.5)
target = torch.tensor(normal(4, 5, 4, seed=5))
for step in range(5):
    scores = (x @ q) @ (x @ k).transpose(1, 2) / 2
    attention = scores.masked_fill(~mask.unsqueeze(1), -float("inf")).softmax(-1)
    log("attention", attention[1, 0].tolist())
    error = (attention @ (x @ v) - target).square().mean(2)
    loss = (error * mask).sum() / mask.sum()
    log("loss", loss.item())
    opt.zero_grad()
    loss.backward()
    opt.step()
log("q", q.tolist())
p = torch.tensor(uniform(6, seed=6, low=-1, high=1), requires_grad=True)
safe = torch.where(p > 0, torch.where(p > 0, p, 1).log(), 0).sum()
log("safe", safe.item())
safe.backward()
log("gradient of log", p.grad.tolist())
log("selected", p[p > 0].tolist())
log("replaced", [2.0, 0.0, 2.0])
