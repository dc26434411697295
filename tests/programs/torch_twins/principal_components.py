import torch
from common import log, normal

data = normal(25, 4, seed=1) @ (normal(4, 4, seed=2) * [3.0, 1.0, 0.5, 0.2]).astype("float32")
x = torch.tensor(data)
x = x - x.mean(0)
covariance = x.T @ x / 24
log("covariance", covariance.tolist())
log("total", covariance.diagonal().sum().item())
values, vectors = torch.linalg.eigh(covariance)
for component in range(2):
    v = vectors[:, -1 - component]
    log("variance", values[-1 - component].item())
    log("direction", (v if v.max().abs() > v.min().abs() else -v).tolist())
log("singular values", (torch.linalg.svdvals(x).square() / 24).tolist())
log("rebuilt", 0.0)
