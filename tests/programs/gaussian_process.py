"""Gaussian process regression: a Cholesky factor built row by row in place, triangular solves, then
hyperparameters by gradients."""

import math

import numpy as np
from common import log, normal
from tinygrad_cpp import Tensor

N = 8
grid = np.linspace(-2, 2, N, dtype=np.float32)
x, y = Tensor(grid), Tensor(np.sin(2 * grid) + 0.1 * normal(N, seed=1))


def kernel(a, b, log_length, log_scale):
    return (log_scale * 2).exp() * (-0.5 * ((a.unsqueeze(1) - b.unsqueeze(0)) / log_length.exp()).square()).exp()


def cholesky(a):
    """Gives the lower factor as a graph without writes, so that gradients go through it."""
    columns = []
    for j in range(N):
        rest = a[:, j]
        for c in columns:
            rest = rest - c * c[j]
        columns.append((Tensor.arange(N) >= j).where(rest / rest[j].sqrt(), 0))
    return Tensor.stack(*columns, dim=1)


def forward_solve(low, b):
    out = []
    for i in range(N):
        value = b[i]
        for j in range(i):
            value = value - low[i, j] * out[j]
        out.append(value / low[i, i])
    return Tensor.stack(*out)


def negative_likelihood(theta):
    low = cholesky(kernel(x, x, theta[0], theta[1]) + Tensor.eye(N) * (theta[2] * 2).exp())
    z = forward_solve(low, y)
    return 0.5 * z.square().sum() + low.diagonal().log().sum() + 0.5 * N * math.log(2 * math.pi), low, z


theta = Tensor([0.0, 0.0, -1.0])
for step in range(3):
    loss, low, z = negative_likelihood(theta)
    log("likelihood", loss.item())
    (gradient,) = loss.gradient(theta)
    log("gradient", gradient.tolist(), rtol=1e-3)  # differences of nearly equal entries of the kernel
    theta = (theta - 0.05 * gradient).detach().realize()
log("theta", theta.tolist(), rtol=1e-3)

low = Tensor.zeros(N, N).contiguous().realize()
a = (kernel(x, x, theta[0], theta[1]) + Tensor.eye(N) * (theta[2] * 2).exp()).realize()
for i in range(N):
    for j in range(i + 1):
        rest = a[i, j] - (low[i, :j] * low[j, :j]).sum() if j else a[i, j]
        low[i, j] = rest.sqrt() if i == j else rest / low[j, j]
log("factor in place", (low @ low.T - a).abs().max().item(), atol=1e-5)
z = forward_solve(low, y)
at = Tensor(np.array([-1.5, 0.25, 3.0], np.float32))
cross = kernel(x, at, theta[0], theta[1])
half = forward_solve(low, cross)
log("mean", (half.T @ z).tolist(), rtol=1e-3)
log("variance", ((theta[1] * 2).exp() - half.square().sum(axis=0)).tolist(), rtol=1e-3)
