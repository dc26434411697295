import numpy as np
import torch
from common import initial, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 5), torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.b(self.a(x).tanh())


class Member:
    def __init__(self, number):
        self.net = Net()
        self.net.load_state_dict({k: torch.tensor(v * np.float32(1 + 0.2 * number)) for k,
                                  v in initial(self.net.state_dict()).items()})
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05 * (number + 1), momentum=0.5)
        self.number, self.losses = number, []

    def step(self, x, y):
        self.opt.zero_grad()
        loss = (self.net(x) - y).square().mean()
        loss.backward()
        self.opt.step()
        return loss.item()


members = [Member(i) for i in range(3)]
for generation in range(3):
    for m in members:
        for i in range(4):
            seed = 100 * generation + 10 * m.number + i
            m.losses.append(m.step(torch.tensor(normal(6, 3, seed=seed)), torch.tensor(normal(6, 1, seed=seed + 1))))
        m.score = (m.net(torch.tensor(normal(20, 3, seed=5))) - torch.tensor(normal(20, 1,
                seed=6))).square().mean().item()
    log("scores", [m.score for m in members])
    best, worst = min(members, key=lambda m: m.score), max(members, key=lambda m: m.score)
    worst.net.load_state_dict(best.net.state_dict())
    worst.opt.param_groups[0]["lr"] = best.opt.param_groups[0]["lr"] * 1.2
for m in members:
    log("losses", m.losses)
net = best.net
for step in range(3):
    gathered = []
    for rank in range(2):
        r = rank + 2 * step
        loss = (net(torch.tensor(normal(8, 3, seed=r))) - torch.tensor(normal(8, 1, seed=10 + r))).square().mean()
        gathered.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))]))
    mean, at = sum(gathered) / 2, 0
    log("mean gradient", mean.tolist())
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * mean[at : at + p.numel()].reshape(p.shape)
            at += p.numel()
for k in range(6):
    log("queued", best.step(torch.tensor(normal(6, 3, seed=k)) * 2, torch.tensor(normal(6, 1, seed=k))))
log("weight", net.a.weight.tolist())
