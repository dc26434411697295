import numpy as np
import torch
import torch.nn.functional as F
from common import initial, log, normal, uniform
from torch import nn


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.c1, self.c2 = nn.Linear(4, 8 * 2 * 2), nn.ConvTranspose2d(8, 4, 4, stride=2,
                padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, z):
        return self.c2(self.c1(self.bn(self.inp(z).reshape(-1, 8, 2, 2)).relu()).relu()).tanh()


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 4, stride=2,
                padding=1), nn.Linear(32, 1)

    def forward(self, x):
        return self.out(F.softplus(self.c2(F.softplus(self.c1(x)))).flatten(1))


g, d = G(), D()
for net in (g, d):
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt_g = torch.optim.Adam(g.parameters(), lr=0.01, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(d.parameters(), lr=0.01, betas=(0.0, 0.9))
for i in range(5):
    g.train()
    for k in range(2):
        seed = 2 * i + k
        real, z, mix = torch.tensor(normal(4, 1, 4, 4, seed=seed)), torch.tensor(normal(4, 4,
                seed=50 + seed)), torch.tensor(uniform(4, 1, 1, 1, seed=90 + seed))
        fake = g(z).detach()
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        slope = torch.autograd.grad(d(between).sum(), between, create_graph=True)[0]
        penalty = ((slope.square().sum((1, 2, 3)) + 1e-12).sqrt() - 1).square().mean()
        loss = d(fake).mean() - d(real).mean() + 10 * penalty
        opt_d.zero_grad()
        loss.backward()
        opt_d.step()
        log("critic", np.array([loss.item(), penalty.item()]))
    fake = g(torch.tensor(normal(4, 4, seed=150 + i)))
    loss = -d(fake).mean()
    opt_g.zero_grad()
    loss.backward()
    opt_g.step()
    log("generator", loss.item())
    log("fake", fake.mean(0).tolist())
    g.eval()
    log("evaluated", g(torch.tensor(normal(2, 4, seed=5))).tolist())
log("statistics", g.bn.running_mean.tolist())
log("weight", d.c1.weight.tolist())
