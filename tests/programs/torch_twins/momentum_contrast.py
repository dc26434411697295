import numpy as np
import torch
import torch.nn.functional as F
from common import initial, log, normal


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = torch.nn.Linear(6, 10), torch.nn.LayerNorm(10), torch.nn.Linear(10, 4)

    def forward(self, x):
        z = self.b(F.silu(self.n(self.a(x))))
        return z / (z.square().sum(-1, keepdim=True) + 1e-8).sqrt()


query, key = Encoder(), Encoder()
for e in (query, key):
    e.load_state_dict({k: torch.tensor(v) for k, v in initial(e.state_dict()).items()})
opt = torch.optim.AdamW(query.parameters(), lr=0.01, weight_decay=0.01)
bank, at, prototypes = torch.tensor(normal(12, 4, seed=1) * 0.5), 0, torch.tensor(normal(3, 4, seed=2))
for i in range(8):
    x = normal(4, 6, seed=10 + i)
    a, b = torch.tensor(x + np.float32(0.1) * normal(4, 6, seed=40 + i)), torch.tensor(x
            + np.float32(0.1) * normal(4, 6, seed=70 + i))
    with torch.no_grad():
        for k, q in zip(key.parameters(), query.parameters()):
            k.copy_(0.9 * k + 0.1 * q)
        k = key(b)
    q = query(a)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ bank.T], dim=1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    bank = bank.clone()
    bank[at : at + 4] = k
    at = (at + 4) % 12
    q = q.detach()
    nearest = (q @ prototypes.T).argmax(1)
    for c in range(3):
        if (nearest == c).any():
            prototypes[c] = 0.8 * prototypes[c] + 0.2 * q[nearest == c].mean(0)
    log("loss", loss.item())
    log("nearest", nearest.tolist())
    log("at", at)
log("bank", bank.tolist())
log("prototypes", prototypes.tolist())
log("key encoder", key.a.weight.tolist())
x, y = torch.tensor(normal(20, 6, seed=100)), torch.tensor(normal(20, 4, seed=101))
params = list(query.parameters())
for i in range(4):
    now = (query(x) - y).square().sum(1).mean()
    grads = torch.autograd.grad(now, params)
    saved = [p.detach().clone() for p in params]
    square, rate, tries = sum(g.square().sum() for g in grads).item(), 2.0, 0
    with torch.no_grad():
        while True:
            for p, s, g in zip(params, saved, grads):
                p.copy_(s - rate * g)
            value = (query(x) - y).square().sum(1).mean().item()
            if value <= now.item() - 0.3 * rate * square or tries == 8:
                break
            rate, tries = rate / 2, tries + 1
        log("search", [now.item(), value, rate])
        if i == 2:
            for p, s in zip(params, saved):
                p.copy_(s)
log("weight", query.b.weight.tolist())
