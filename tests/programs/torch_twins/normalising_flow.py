import math

import torch
from common import initial, log, normal


class Coupling(torch.nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip, self.hidden, self.out = flip, torch.nn.Linear(1, 8), torch.nn.Linear(8, 2)

    def forward(self, x, inverse=False):
        a, b = x.chunk(2, 1)
        a, b = (b, a) if self.flip else (a, b)
        log_scale, shift = self.out(self.hidden(a).tanh()).chunk(2, 1)
        log_scale = log_scale.tanh()
        b = (b - shift) * (-log_scale).exp() if inverse else b * log_scale.exp() + shift
        return torch.cat([b, a] if self.flip else [a, b], 1), log_scale.sum(1)


flow = torch.nn.ModuleList([Coupling(bool(i % 2)) for i in range(4)])
flow.load_state_dict({k: torch.tensor(v) for k, v in initial(flow.state_dict()).items()})
opt = torch.optim.Adam(flow.parameters(), lr=0.01)
data = normal(24, 2, seed=1)
data[:, 1] = data[:, 0] ** 2 * 0.5 + 0.3 * data[:, 1]
for step in range(5):
    z, total = torch.tensor(data), torch.zeros(24)
    for layer in flow:
        z, determinant = layer(z)
        total = total + determinant
    likelihood = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi)).sum(1) + total
    log("log likelihood", likelihood.tolist()[:4])
    loss = -likelihood.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
start = torch.tensor(normal(5, 2, seed=2))
z = start
for layer in reversed(flow):
    z = layer(z, inverse=True)[0]
log("samples", z.tolist())
log("back again", start.tolist())
