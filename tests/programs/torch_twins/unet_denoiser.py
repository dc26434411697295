import copy

import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, normal
from torch import nn

STEPS, C = 6, 8
betas = np.linspace(0.05, 0.4, STEPS, dtype=np.float32)
bars = np.cumprod(1 - betas)


class Res(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.n1, self.c1, self.t = nn.GroupNorm(2, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(C, b)
        self.n2, self.c2 = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(t).reshape(x.shape[0], -1, 1, 1)
        return self.c2(F.silu(self.n2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.inp = nn.Sequential(nn.Linear(C, C), nn.SiLU(), nn.Linear(C, C)), nn.Conv2d(1, C, 3, padding=1)
        self.r1, self.down, self.r2 = Res(C, C), nn.Conv2d(C, C, 3, stride=2, padding=1), Res(C, 2 * C)
        self.up, self.r3, self.out = nn.ConvTranspose2d(2 * C, C, 4, stride=2, padding=1), Res(2 * C, C), nn.Conv2d(C,
                1, 1)

    def forward(self, x, t):
        freqs = (-np.log(10.0) * torch.arange(C // 2) / (C // 2)).exp()
        angles = t.reshape(-1, 1).float() * freqs
        t = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        a = self.r1(self.inp(x), t)
        b = self.r2(self.down(a), t)
        return self.out(self.r3(torch.cat([self.up(b), a], dim=1), t))


net = UNet()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
average = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
bars_t = torch.tensor(bars)
for epoch in range(3):
    for i in range(3):
        seed = 3 * epoch + i
        rows = np.linspace(-1, 1, 8, dtype=np.float32)
        x = torch.tensor(rows[None, None, :, None] * normal(4, 1, 1, 1, seed=seed)
                         + rows * normal(4, 1, 1, 1, seed=seed + 50))
        t, noise = torch.tensor(integers(STEPS, 4, seed=seed)).long(), torch.tensor(normal(4, 1, 8, 8, seed=100 + seed))
        bar = bars_t[t].reshape(-1, 1, 1, 1)
        loss = (net(bar.sqrt() * x + (1 - bar).sqrt() * noise, t) - noise).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters()):
                a.copy_(0.8 * a + 0.2 * p)
        log("loss", loss.item())
    x = normal(2, 1, 8, 8, seed=7)
    for t in reversed(range(STEPS)):
        with torch.no_grad():
            e = average(torch.tensor(x), torch.full((2,), t)).numpy()
        x = (x - betas[t] / np.sqrt(1 - bars[t]) * e) / np.sqrt(1 - betas[t])
        if t:
            x = x + np.sqrt(betas[t]) * normal(2, 1, 8, 8, seed=200 + t)
        x = x.astype(np.float32)
    log("sample", x)
