import torch
from common import log, normal

X, Y = torch.tensor(normal(5, 4, 6, 3, seed=1)), torch.tensor(normal(5, 4, 6, 2, seed=2))
for style in ("eager", "jitted"):
    w, b = torch.tensor(normal(3, 2, seed=3), requires_grad=True), torch.tensor(normal(2, seed=4), requires_grad=True)
    opt = torch.optim.SGD([w, b], lr=0.1, momentum=0.9)
    for step in range(5):
        opt.zero_grad()
        total = 0.0
        for micro in range(4):
            loss = ((X[step, micro] @ w + b).sigmoid() - Y[step, micro]).square().mean() / 4
            loss.backward()
            total += loss.item()
        log("gradient", w.grad.tolist())
        opt.step()
        log("loss", total)
    log("w", w.tolist())
