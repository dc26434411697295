import torch
from common import log, normal

x = torch.tensor(normal(5, 3, seed=2))


def start():
    return torch.tensor(normal(3, 3, seed=1), requires_grad=True)


def train(w, seed):
    opt, y, losses = torch.optim.SGD([w], lr=0.1), torch.tensor(normal(5, 3, seed=seed)), []
    for _ in range(3):
        opt.zero_grad()
        loss = (x @ w - y).square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses + [(x @ w).tanh().sum().item()]


log("before", [((x + i) @ start()).tanh().sum().item() for i in range(4)])
w = start()
log("parent", train(w, 20))
for child in range(3):
    log("status", 0)
    log("child", train(start(), 10 + child))
log("w", w.tolist())
