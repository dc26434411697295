import math

import torch
import torch.nn.functional as F
from common import initial, log, normal, uniform

RAYS, SAMPLES = 6, 8


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = torch.nn.Linear(15, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)

    def forward(self, p):
        encoded = [p] + [f(p * 2.0**k * math.pi) for k in range(2) for f in (torch.sin, torch.cos)]
        return self.l3(self.l2(self.l1(torch.cat(encoded, -1)).relu()).relu())


def render(field, origin, direction):
    t = torch.linspace(0.5, 2.0, SAMPLES)
    raw = field(origin.unsqueeze(1) + direction.unsqueeze(1) * t.reshape(1, SAMPLES, 1))
    density, colour = F.softplus(raw[..., 0]), raw[..., 1:].sigmoid()
    alpha = 1 - (-density * (1.5 / (SAMPLES - 1))).exp()
    passed = (1 - alpha + 1e-10).cumprod(1)
    weights = alpha * torch.cat([torch.ones(RAYS, 1), passed[:, :-1]], 1)
    return (weights.unsqueeze(2) * colour).sum(1), (weights * t).sum(1)


field = Field()
field.load_state_dict({k: torch.tensor(v) for k, v in initial(field.state_dict()).items()})
opt = torch.optim.Adam(field.parameters(), lr=0.005)
for i in range(5):
    opt.zero_grad()
    rays = torch.tensor(normal(RAYS, 3, seed=i) * 0.1), torch.tensor(normal(RAYS, 3, seed=20 + i) * 0.5)
    colour, depth = render(field, *rays)
    loss = (colour - torch.tensor(uniform(RAYS, 3, seed=40 + i))).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("depth", depth.tolist())
log("colour", render(field, torch.zeros(RAYS, 3), torch.tensor(normal(RAYS, 3, seed=60)))[0].tolist())
