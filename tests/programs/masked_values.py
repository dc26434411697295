"""Padding masks: means over valid steps, attention that ignores padding, masked losses, masked_fill and where with
gradients, NaN kept out."""

import numpy as np
from common import log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn

lengths = np.array([5, 3, 1, 4])
mask = Tensor(np.arange(5)[None] < lengths[:, None])
raw = normal(4, 5, 3, seed=1)
raw[np.arange(5)[None] >= lengths[:, None]] = np.nan
x = mask.unsqueeze(2).where(Tensor(raw), 0)
log("means", (x.sum(axis=1) / mask.sum(axis=1, keepdim=True)).numpy())
log("largest", mask.unsqueeze(2).where(x, -float("inf")).max(axis=1).numpy())

q, k, v = (Tensor(normal(3, 4, seed=s)) for s in (2, 3, 4))
opt = nn.optim.SGD([q, k, v], lr=0.5)
target = Tensor(normal(4, 5, 4, seed=5))
with Context(TRAINING=1):
    for step in range(5):
        scores = (x @ q) @ (x @ k).transpose(1, 2) / 2
        attention = scores.masked_fill(~mask.unsqueeze(1), -float("inf")).softmax(axis=-1)
        log("attention", attention[1, 0].tolist())
        out = attention @ (x @ v)
        error = (out - target).square().mean(axis=2)
        loss = (error * mask).sum() / mask.sum()
        log("loss", loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
log("q", q.numpy())

p = Tensor(uniform(6, seed=6, low=-1, high=1))
safe = (p > 0).where((p > 0).where(p, 1).log(), 0).sum()
log("safe", safe.item())
safe.backward()
log("gradient of log", p.grad.tolist())
chosen = p.masked_select(p > 0)
log("selected", chosen.tolist())
log("replaced", Tensor([1.0, float("nan"), 3.0]).isnan().where(0, 2.0).tolist())
