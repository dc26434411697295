import torch
from common import log, normal

K = 3
points = normal(30, 2, seed=1)
points[:10] += 4
points[10:20, 0] -= 4
x = torch.tensor(points)
centres = x[:K].clone()
for step in range(12):
    distance = (x.unsqueeze(1) - centres.unsqueeze(0)).square().sum(2)
    nearest = distance.argmin(1)
    members = (nearest.unsqueeze(1) == torch.arange(K)).float()
    new = (members.T @ x) / members.sum(0).clamp(min=1).unsqueeze(1)
    moved = (new - centres).abs().max().item()
    log("inertia", distance.min(1).values.sum().item())
    centres = new
    log("centres", centres.tolist())
    if moved < 1e-6:
        break
log("members", nearest.tolist())
log("sizes", members.sum(0).tolist())
