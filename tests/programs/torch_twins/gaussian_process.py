import math

import numpy as np
import torch
from common import log, normal

N = 8
grid = np.linspace(-2, 2, N, dtype=np.float32)
x, y = torch.tensor(grid), torch.tensor(np.sin(2 * grid) + 0.1 * normal(N, seed=1))


def kernel(a, b, t):
    return (t[1] * 2).exp() * (-0.5 * ((a.unsqueeze(1) - b.unsqueeze(0)) / t[0].exp()).square()).exp()


def factor(t):
    low = torch.linalg.cholesky(kernel(x, x, t) + torch.eye(N) * (t[2] * 2).exp())
    return low, torch.linalg.solve_triangular(low, y.unsqueeze(1), upper=False).squeeze(1)


theta = torch.tensor([0.0, 0.0, -1.0], requires_grad=True)
for step in range(3):
    low, z = factor(theta)
    loss = 0.5 * z.square().sum() + low.diagonal().log().sum() + 0.5 * N * math.log(2 * math.pi)
    log("likelihood", loss.item())
    (gradient,) = torch.autograd.grad(loss, theta)
    log("gradient", gradient.tolist())
    theta = (theta - 0.05 * gradient).detach().requires_grad_()
log("theta", theta.tolist())
log("factor in place", 0.0)
low, z = factor(theta)
half = torch.linalg.solve_triangular(low, kernel(x, torch.tensor([-1.5, 0.25, 3.0]), theta), upper=False)
log("mean", (half.T @ z).tolist())
log("variance", ((theta[1] * 2).exp() - half.square().sum(0)).tolist())
