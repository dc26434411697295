import torch
from common import log, normal

x, y = torch.tensor(normal(10, 4, seed=1)), torch.tensor(normal(10, 2, seed=2))


def run(steps, rule):
    w, b = torch.tensor(normal(4, 2, seed=3), requires_grad=True), torch.tensor(normal(2, seed=4), requires_grad=True)
    state = [torch.zeros_like(w), torch.zeros_like(b)]
    for _ in range(steps):
        loss = ((x @ w + b).tanh() - y).square().mean()
        log("loss", loss.item())
        gradients = torch.autograd.grad(loss, (w, b))
        with torch.no_grad():
            for p, s, g in zip((w, b), state, gradients):
                rule(p, s, g)
    log("w", w.tolist())
    return state


def momentum(p, s, g):
    s.mul_(0.9).add_(g)
    p -= 0.2 * s


def adagrad(p, s, g):
    s += g * g
    p -= 0.3 * g / (s.sqrt() + 1e-8)


for _ in range(2):
    run(4, lambda p, s, g: p.sub_(0.5 * g))
run(4, momentum)
log("squares", run(6, adagrad)[1].tolist())
