import torch
from common import log, normal

w, scale = torch.tensor(normal(5, 5, seed=1), requires_grad=True), torch.tensor(normal(5, seed=2), requires_grad=True)
opt = torch.optim.SGD([w, scale], lr=0.02, momentum=0.5)
x, seen, total = torch.tensor(normal(10, 5, seed=3)), torch.zeros(5), torch.tensor(0.0)
for step in range(6):
    opt.zero_grad()
    h = (x @ w).tanh()
    seen = seen * 0.9 + h.mean(0).detach() * 0.1
    loss = ((h * scale).sum(1) - h.detach().sum(1) * 0.5).square().mean()
    loss.backward()
    total = total + loss.detach()
    opt.step()
    log("loss", loss.item())
    log("gradient", w.grad.norm().item())
log("seen", seen.tolist())
log("total", total.item())
log("w", w.tolist())
