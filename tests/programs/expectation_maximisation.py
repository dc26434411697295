"""A Gaussian mixture fitted by expectation maximisation with full covariances of the plane, and once more by
gradients of its likelihood."""

import math

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

data = normal(30, 2, seed=1)
data[:15] = data[:15] * [0.5, 1.5] + [2, 0]
x = Tensor(data).realize()
K = 2
weights, means = Tensor.ones(K) / K, Tensor([[1.0, 1.0], [-1.0, -1.0]])
covariances = Tensor.eye(2).unsqueeze(0).expand(K, 2, 2)


def log_densities(means, covariances):
    a, b, d = covariances[:, 0, 0], covariances[:, 0, 1], covariances[:, 1, 1]
    determinant = a * d - b * b
    u, v = (x.unsqueeze(1) - means.unsqueeze(0)).split(1, dim=2)
    u, v = u.squeeze(2), v.squeeze(2)
    distance = (d * u * u - 2 * b * u * v + a * v * v) / determinant
    return -0.5 * (distance + determinant.log()) - math.log(2 * math.pi)


for step in range(6):
    joint = weights.log() + log_densities(means, covariances)
    evidence = joint.logsumexp(axis=1, keepdim=True)
    log("likelihood", evidence.mean().item())
    r = (joint - evidence).exp()
    total = r.sum(axis=0)
    weights, means = (total / 30).realize(), ((r.T @ x) / total.unsqueeze(1)).realize()
    centred = x.unsqueeze(1) - means.unsqueeze(0)
    covariances = Tensor.einsum("nk,nki,nkj->kij", r, centred, centred) / total.reshape(K, 1, 1) + 1e-4 * Tensor.eye(2)
    covariances = covariances.realize()
log("weights", weights.tolist())
log("means", means.tolist())
log("covariances", covariances.tolist())

logits, centres, scales = Tensor([0.1, -0.1]), Tensor([[1.0, 1.0], [-1.0, -1.0]]), Tensor.zeros(K, 2)
opt = nn.optim.Adam([logits, centres, scales], lr=0.1)
with Context(TRAINING=1):
    for step in range(6):
        z = (x.unsqueeze(1) - centres) * (-scales).exp()
        density = (-0.5 * z.square() - scales - 0.5 * math.log(2 * math.pi)).sum(axis=2)
        loss = -(logits.log_softmax() + density).logsumexp(axis=1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())
log("centres", centres.tolist())
