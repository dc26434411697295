import torch
from common import log, normal

log("sums of batches", [torch.tensor(normal(6, seed=40 + i)).exp().sum().item() for i in range(5)])
log("errors", "")
for seed in range(4):
    w = torch.tensor(normal(4, 2, seed=seed), requires_grad=True)
    opt, losses = torch.optim.SGD([w], lr=0.1, momentum=0.9), []
    x, y = torch.tensor(normal(10, 4, seed=seed + 10)), torch.tensor(normal(10, 2, seed=seed + 20))
    for _ in range(6):
        opt.zero_grad()
        loss = (x @ w - y).square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    log("losses", losses)
    log("w", w.tolist())
    log("shared", [float(2 * (seed + i) + 1) for i in range(4)])
