"""PCA twice: power iteration with deflation in place, and svd of the centred data; the explained variance agrees."""

from common import log, normal
from tinygrad_cpp import Tensor

data = normal(25, 4, seed=1) @ (normal(4, 4, seed=2) * [3.0, 1.0, 0.5, 0.2]).astype("float32")
x = Tensor(data)
x = x - x.mean(axis=0)
covariance = (x.T @ x / (25 - 1)).contiguous().realize()
log("covariance", covariance.numpy())
log("total", covariance.diagonal().sum().item())
remaining = covariance.clone().realize()
for component in range(2):
    v = Tensor.ones(4) / 2
    for _ in range(60):
        v = remaining @ v
        v = (v / v.square().sum().sqrt()).realize()
    variance = v @ (remaining @ v)
    v = v * v.max().sign() if abs(v.max().item()) > abs(v.min().item()) else -v
    log("variance", variance.item())
    log("direction", v.tolist(), rtol=1e-3)  # the ratio of the second and third variance to the power 60
    remaining -= variance * v.unsqueeze(1) * v.unsqueeze(0)
    remaining.realize()
u, s, vt = x.svd(full_matrices=False)
log("singular values", (s.square() / 24).numpy())
log("rebuilt", ((u * s.unsqueeze(0)) @ vt - x).abs().max().item(), atol=1e-4)
