import torch
from common import log, normal

w1, b1, w2 = (torch.tensor(normal(*s, seed=i + 1), requires_grad=True) for i, s in enumerate([(4, 6), (6,), (6, 2)]))
opt = torch.optim.SGD([w1, b1, w2], lr=0.05)
x, y = torch.tensor(normal(8, 4, seed=4)), torch.tensor(normal(8, 2, seed=5))
for step in range(6):
    opt.zero_grad()
    hidden = (x @ w1 + b1).relu()
    log("alive", int((hidden > 0).sum()))
    out = hidden @ w2
    loss = (out - y).square().mean()
    log("loss", loss.item())
    log("as list", out[0].tolist())
    loss.backward()
    log("gradient norms", [p.grad.norm().item() for p in (w1, b1, w2)])
    opt.step()
log("w1", w1.tolist())
