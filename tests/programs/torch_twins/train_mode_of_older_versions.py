import torch
import torch.nn.functional as F
from common import log, normal

w, b = torch.tensor(normal(6, 3, seed=1), requires_grad=True), torch.zeros(3, requires_grad=True)
x, target = torch.tensor(normal(16, 6, seed=2)), torch.tensor(normal(16, 3, seed=3))
opt = torch.optim.SGD([w, b], lr=0.05)
for epoch in range(5):
    opt.zero_grad()
    loss = (F.gelu(x @ w + b, approximate="tanh") - target).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("gradients", [w.grad.norm().item(), b.grad.norm().item()])
    log("validation", (F.gelu(x @ w + b, approximate="tanh") - target).abs().max().item())
log("w", w.tolist())
