import math

import torch
from common import log, normal, uniform

precision = torch.tensor([[2.0, 0.6], [0.6, 1.0]])


def energy(q):
    return 0.5 * (q * (precision @ q)).sum() + 0.1 * q.pow(4).sum()


def slope(q):
    q = q.detach().requires_grad_()
    return torch.autograd.grad(energy(q), q)[0]


q, chain, accepted = torch.tensor([1.0, -1.0]), [], 0
for step in range(8):
    momentum = torch.tensor(normal(2, seed=step))
    old = (energy(q) + 0.5 * momentum.square().sum()).item()
    position, p = q, momentum - 0.1 * slope(q)
    for leap in range(5):
        position = position + 0.2 * p
        p = p - (0.2 if leap < 4 else 0.1) * slope(position)
    new = (energy(position) + 0.5 * p.square().sum()).item()
    log("energies", [old, new])
    if math.log(float(uniform(1, seed=step)[0])) < old - new:
        q, accepted = position, accepted + 1
    chain.append(q)
    log("q", q.tolist())
log("accepted", accepted)
log("mean", torch.stack(chain).mean(0).tolist())
