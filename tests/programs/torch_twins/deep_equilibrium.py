import torch
from common import log, normal

w, u, b, v = (
    torch.tensor(a, requires_grad=True)
    for a in (normal(6, 6, seed=1) * 0.15, normal(3, 6, seed=2), normal(6, seed=3) * 0.1, normal(6, 2, seed=4))
)
opt = torch.optim.Adam([w, u, b, v], lr=0.02)
for i in range(6):
    x, y = torch.tensor(normal(5, 3, seed=10 + i)), torch.tensor(normal(5, 2, seed=30 + i))
    with torch.no_grad():
        z = torch.zeros(5, 6)
        for _ in range(100):
            z = (z @ w + x @ u + b).tanh()
    log("forward", True)
    star = z.clone().requires_grad_()
    fz = (star @ w + x @ u + b).tanh()
    loss_z = z.clone().requires_grad_()
    loss = (loss_z @ v - y).square().mean()
    dz, dv = torch.autograd.grad(loss, [loss_z, v])
    a = dz
    for _ in range(100):
        a = dz + torch.autograd.grad(fz, star, a, retain_graph=True)[0]
    log("backward", True)
    for p, g in zip([w, u, b], torch.autograd.grad(fz, [w, u, b], a)):
        p.grad = g
    v.grad = dv
    opt.step()
    log("loss", loss.item())
    log("adjoint", a.tolist())
log("w", w.tolist())


def sinkhorn(cost, n):
    k = (-cost / 0.3).exp()
    a = torch.ones(4) / 4
    for _ in range(n):
        c = (1 / 5) / (a @ k)
        a = (1 / 4) / (k @ c)
    return a.reshape(-1, 1) * k * c


points, goals = torch.tensor(normal(4, 2, seed=60)), torch.tensor(normal(5, 2, seed=61))
for step in range(5):
    points.requires_grad_()
    cost = (points.unsqueeze(1) - goals).square().sum(-1)
    plan = sinkhorn(cost, 20)
    loss = (plan * cost).sum()
    (grad,) = torch.autograd.grad(loss, points)
    log("transport", loss.item())
    log("rows", plan.sum(1).tolist())
    points = (points - 2 * grad).detach()
log("points", points.tolist())
