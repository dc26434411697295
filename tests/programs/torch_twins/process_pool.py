import torch
from common import log, normal

x, y = torch.tensor(normal(9, 4, seed=3)), torch.tensor(normal(9, 2, seed=2))
for method in ("fork", "spawn"):
    answers = []
    for rate in (0.01, 0.1, 0.5):
        w = torch.tensor(normal(4, 2, seed=1), requires_grad=True)
        opt = torch.optim.Adam([w], lr=rate)
        for _ in range(5):
            opt.zero_grad()
            loss = (x @ w - y).square().mean()
            loss.backward()
            opt.step()
        answers.append((loss.item(), w))
    log("losses", [loss for loss, _ in answers])
    log("best", (x @ min(answers, key=lambda a: a[0])[1]).tolist())
