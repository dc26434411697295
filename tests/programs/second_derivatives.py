"""Gradients of gradients: a Hessian row by row, Hessian times vector, a third derivative, Newton's method; values
are read on the way."""

from common import log, normal
from tinygrad_cpp import Tensor

x = Tensor([0.5, -1.0, 2.0])
a = Tensor(normal(3, 3, seed=1))


def f(x):
    return ((a @ x).tanh().sum() * x.square().sum()) + x.pow(4).sum() * 0.1


y = f(x)
log("value", y.item())
(g,) = y.gradient(x)
log("gradient", g.numpy())
log("hessian", [g[i].gradient(x)[0].tolist() for i in range(3)])
v = Tensor([1.0, 2.0, -1.0])
(hv,) = (g * v).sum().gradient(x)
log("hessian times vector", hv.tolist())
log("third", (hv * v).sum().gradient(x)[0].tolist())

z = Tensor([3.0])
for _ in range(5):
    value = z.exp().sum() - 4 * z.sum()
    (slope,) = value.gradient(z)
    (curvature,) = slope.sum().gradient(z)
    log("newton", [value.item(), slope.item(), curvature.item()])
    z = (z - slope / curvature).detach()
log("minimum", z.item())
