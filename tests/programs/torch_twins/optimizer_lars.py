import torch
from common import log, normal

x, y = torch.tensor(normal(10, 5, seed=1)), torch.tensor(normal(10, 2, seed=2))


def run(lr=2.0, momentum=0.9, decay=1e-2, trust=0.02):
    w1, b1, w2 = (
        torch.tensor(v, requires_grad=True) for v in (normal(5, 7, seed=3), normal(7, seed=4), normal(7, 2, seed=5))
    )
    velocity = {p: torch.zeros_like(p) for p in (w1, w2)}
    for _ in range(6):
        for p in (w1, b1, w2):
            p.grad = None
        loss = ((x @ w1 + b1).relu() @ w2 - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for p, v in velocity.items():
                rate = trust * p.norm() / (p.grad.norm() + decay * p.norm())
                v.mul_(momentum).add_(lr * rate * (p.grad + decay * p))
                p -= v
            b1 -= 0.05 * b1.grad
        log("loss", loss.item())
    log("w1", w1.tolist())
    log("b1", b1.tolist())


run()
run()
