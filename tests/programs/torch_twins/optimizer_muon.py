import torch
from common import log, normal

x, y = torch.tensor(normal(10, 5, seed=1)), torch.tensor(normal(10, 4, seed=2))


def orthogonal(g, steps=5, a=3.4445, b=-4.775, c=2.0315):
    """Newton and Schulz's iteration in float32."""
    z = g / (g.norm() + 1e-7)
    tall = g.shape[0] > g.shape[1]
    z = z.T if tall else z
    for _ in range(steps):
        s = z @ z.T
        z = a * z + (b * s + c * s @ s) @ z
    return z.T if tall else z


def run(lr=0.05, momentum=0.9, decay=0.1):
    w1, g, w2 = (
        torch.tensor(v, requires_grad=True) for v in (normal(5, 8, seed=3), normal(8, seed=4), normal(8, 4, seed=5))
    )
    velocity, adam = {p: torch.zeros_like(p) for p in (w1, w2)}, torch.optim.AdamW([g], lr=0.01, weight_decay=0.0)
    for _ in range(5):
        for p in (w1, g, w2):
            p.grad = None
        loss = (((x @ w1).tanh() * g) @ w2 - y).square().mean()
        loss.backward()
        adam.step()
        with torch.no_grad():
            for p, v in velocity.items():
                v.mul_(momentum).add_(p.grad)
                update = orthogonal(p.grad + momentum * v)
                p.mul_(1 - decay * lr).sub_(lr * update)
        log("loss", loss.item())
    log("w1", w1.tolist())
    log("g", g.tolist())


run()
run()
