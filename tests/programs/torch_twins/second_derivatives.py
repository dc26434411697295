import torch
from common import log, normal

x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
a = torch.tensor(normal(3, 3, seed=1))
grad = torch.autograd.grad
y = ((a @ x).tanh().sum() * x.square().sum()) + x.pow(4).sum() * 0.1
log("value", y.item())
(g,) = grad(y, x, create_graph=True)
log("gradient", g.tolist())
log("hessian", [grad(g[i], x, retain_graph=True)[0].tolist() for i in range(3)])
v = torch.tensor([1.0, 2.0, -1.0])
(hv,) = grad((g * v).sum(), x, create_graph=True)
log("hessian times vector", hv.tolist())
log("third", grad((hv * v).sum(), x)[0].tolist())
z = torch.tensor([3.0], requires_grad=True)
for _ in range(5):
    value = z.exp().sum() - 4 * z.sum()
    (slope,) = grad(value, z, create_graph=True)
    (curvature,) = grad(slope.sum(), z)
    log("newton", [value.item(), slope.item(), curvature.item()])
    z = (z - slope / curvature).detach().requires_grad_()
log("minimum", z.item())
