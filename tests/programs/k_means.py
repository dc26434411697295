"""Lloyd's algorithm with plain tensors: distances, argmin, means by one-hot products, centres assigned in place
until nothing moves."""

from common import log, normal
from tinygrad_cpp import Tensor

K = 3
points = normal(30, 2, seed=1)
points[:10] += 4
points[10:20, 0] -= 4
x = Tensor(points).realize()
centres = x[:K].clone().realize()
for step in range(12):
    distance = (x.unsqueeze(1) - centres.unsqueeze(0)).square().sum(axis=2)
    nearest = distance.argmin(axis=1)
    members = (nearest.unsqueeze(1) == Tensor.arange(K)).float()
    new = (members.T @ x) / members.sum(axis=0).maximum(1).unsqueeze(1)
    moved = (new - centres).abs().max().item()
    log("inertia", distance.min(axis=1).sum().item())
    centres.assign(new).realize()
    log("centres", centres.tolist())
    if moved < 1e-6:
        break
log("members", nearest.tolist())
log("sizes", members.sum(axis=0).tolist())
