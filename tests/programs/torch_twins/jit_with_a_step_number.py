import torch
from common import log, normal

w, b = torch.tensor(normal(4, 2, seed=1), requires_grad=True), torch.tensor(normal(2, seed=2), requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1, momentum=0.9)
for i in range(10):
    opt.zero_grad()
    loss = (torch.tensor(normal(5, 4, seed=10 + i)) @ w + b).tanh().square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("gradient", b.grad.tolist())
    log("norm", w.grad.norm().item())
    log("b", b.tolist())
log("w", w.tolist())
