"""Implicit layers: a fixed point found by a Python loop that stops on .item(), its gradient by solving the adjoint
equation with products of the Jacobian; and Sinkhorn's iterations differentiated through and implicitly."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

w, u, b, v = Tensor(normal(6, 6, seed=1) * 0.15), Tensor(normal(3, 6, seed=2)), Tensor(normal(6,
        seed=3) * 0.1), Tensor(normal(6, 2, seed=4))
params = [w, u, b, v]
opt = nn.optim.Adam(params, lr=0.02)


def f(z, x):
    return (z @ w + x @ u + b).tanh()


def solve(g, z, name):
    for i in range(100):
        new = g(z).realize()
        if (new - z).abs().max().item() < 1e-6:
            break
        z = new
    log(name, i < 99)
    return new


with Context(TRAINING=1):
    for i in range(6):
        x, y = Tensor(normal(5, 3, seed=10 + i)), Tensor(normal(5, 2, seed=30 + i))
        star = solve(lambda z: f(z.detach(), x).detach(), Tensor.zeros(5, 6), "forward")
        z = star.detach().clone().realize()
        fz = f(z, x)
        loss_z = star.detach().clone().realize()
        loss = (loss_z @ v - y).square().mean()
        dz, dv = loss.gradient(loss_z, v)
        adjoint = solve(lambda a: dz.detach() + f(z, x).gradient(z, gradient=a.detach())[0].detach(), dz.realize(),
                        "backward")
        opt.zero_grad()
        for p, grad in zip([w, u, b], fz.gradient(w, u, b, gradient=adjoint)):
            p.grad = grad
        v.grad = dv
        opt.step()
        log("loss", loss.item())
        log("adjoint", adjoint.numpy(), atol=2e-6)
log("w", w.numpy(), atol=1e-4)


def sinkhorn(cost, n):
    k = (-cost / 0.3).exp()
    a = Tensor.ones(4) / 4
    for _ in range(n):
        c = (1 / 5) / (a @ k)
        a = (1 / 4) / (k @ c)
    return a.reshape(-1, 1) * k * c


points, goals = Tensor(normal(4, 2, seed=60)), Tensor(normal(5, 2, seed=61))
for step in range(5):
    cost = (points.unsqueeze(1) - goals).square().sum(-1)
    plan = sinkhorn(cost, 20)
    loss = (plan * cost).sum()
    (grad,) = loss.gradient(points)
    log("transport", loss.item())
    log("rows", plan.sum(1).numpy())
    points = (points - 2 * grad).detach()
log("points", points.numpy(), rtol=1e-3)
