import torch
from common import log, normal

values = normal(6, seed=1), normal(6, seed=2), normal(6, seed=3) * 0.1
decay, gain, bias = (torch.tensor(v, requires_grad=True) for v in values)
opt = torch.optim.Adam([decay, gain, bias], lr=0.05)
drive, target = torch.tensor(normal(12, 6, seed=4)), torch.tensor(normal(6, seed=5))
for step in range(4):
    h = torch.zeros(6)
    for t in range(12):
        h = (h * decay.sigmoid() + gain * drive[t] + bias).tanh()
    log("neurons", h.tolist())
    loss = (h - target).square().mean()
    opt.zero_grad()
    loss.backward()
    log("gradient", decay.grad.tolist())
    opt.step()
    log("loss", loss.item())

rate, y = torch.tensor(normal(5, seed=6), requires_grad=True), torch.tensor(normal(5, seed=7))
for t in range(14):
    y = y + 0.1 * torch.nn.functional.elu(rate * y) - 0.05 * y
y.square().sum().backward()
log("ode", y.tolist())
log("gradient of the rate", rate.grad.tolist())

weight = torch.tensor(normal(5, seed=8), requires_grad=True)
potential, spikes = torch.zeros(5), torch.zeros(5)
for t in range(10):
    potential = potential * 0.8 * (1 - spikes) + weight * drive[t][:5].abs()
    soft = (4 * (potential - 0.5)).sigmoid()
    spikes = soft + ((potential > 0.5).float() - soft).detach()
spikes.sum().backward()
log("spikes", spikes.tolist())
log("surrogate gradient", weight.grad.tolist())
