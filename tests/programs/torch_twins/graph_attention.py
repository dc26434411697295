import numpy as np
import torch
import torch.nn.functional as Fn
from common import integers, log, normal, uniform

N, E, F, H = 14, 40, 5, 6
src, dst = integers(N, E, seed=1), integers(N, E, seed=2)
graph = np.sort(integers(3, N, seed=3))
w1, w2 = torch.tensor(normal(F, H, seed=4) * 0.5, requires_grad=True), torch.tensor(normal(H, 4, seed=5) * 0.5,
        requires_grad=True)
a1, a2 = torch.tensor(normal(2, H, seed=6) * 0.5, requires_grad=True), torch.tensor(normal(2, 4, seed=7) * 0.5,
        requires_grad=True)
params = [w1, w2, a1, a2]
opt = torch.optim.Adam(params, lr=0.02)
s, d, g = (torch.tensor(v).long() for v in (src, dst, graph))
counts = torch.zeros(3).scatter_add(0, g, torch.ones(N))


def layer(x, w, a, alive):
    h = x @ w
    score = Fn.leaky_relu((h * a[0]).sum(-1)[s] + (h * a[1]).sum(-1)[d], 0.2)
    score = torch.where(alive[s], score, -30.0)
    top = torch.full((N,), -1e9).scatter_reduce(0, d, score.detach(), reduce="amax", include_self=False)
    e = (score - top[d]).exp()
    total = torch.zeros(N).scatter_reduce(0, d, e, reduce="sum")
    alpha = e / total[d]
    index = d.unsqueeze(-1).expand(E, h.shape[1])
    return torch.zeros(N, h.shape[1]).scatter_reduce(0, index, alpha.unsqueeze(-1) * h[s], reduce="sum") + h, alpha


def forward(x, alive):
    h, alpha = layer(x, w1, a1, alive)
    h, _ = layer(Fn.elu(h), w2, a2, alive)
    index = g.unsqueeze(-1).expand(N, 4)
    mean = torch.zeros(3, 4).scatter_reduce(0, index, h, reduce="sum") / counts.unsqueeze(-1)
    top = torch.full((3, 4), -1e9).scatter_reduce(0, index, h, reduce="amax")
    return mean + top, alpha


x, y = torch.tensor(normal(N, F, seed=8)), torch.tensor([2, 0, 3])
for i in range(8):
    alive = torch.tensor(uniform(N, seed=20 + i) > 0.2)
    logits, alpha = forward(x, alive)
    loss = Fn.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("alpha", alpha.tolist())
    log("right", (logits.argmax(1) == y).sum().item())
    if i == 4:
        opt.param_groups[0]["lr"] = 0.005
        log("evaluation", forward(x, torch.ones(N, dtype=torch.bool))[0].tolist())
for p in params:
    log("weights", p.tolist())
