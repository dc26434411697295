import numpy as np
import torch
import torch.nn.functional as F
from common import initial, log, normal

D, E, N, K = 6, 8, 4, 3


class Mamba(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.inp, self.conv = nn.Linear(D, 2 * E, bias=False), nn.Conv1d(E, E, K, groups=E, padding=K - 1)
        self.x_proj, self.dt, self.out = nn.Linear(E, 1 + 2 * N, bias=False), nn.Linear(1, E), nn.Linear(E, D,
                bias=False)
        self.load_state_dict({k: torch.tensor(v) for k, v in initial(self.state_dict()).items()})
        self.a_log = nn.Parameter(torch.log(torch.arange(1, N + 1).float().repeat(E, 1)))
        self.d = nn.Parameter(torch.ones(E))

    def forward(self, x):
        T = x.shape[1]
        u, z = self.inp(x).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[:, :, :T].transpose(1, 2))
        delta, b, c = self.x_proj(u).split([1, N, N], dim=-1)
        delta = F.softplus(self.dt(delta))
        a = (delta.unsqueeze(-1) * -self.a_log.exp()).exp()
        bu = delta.unsqueeze(-1) * b.unsqueeze(-2) * u.unsqueeze(-1)
        h, ys = torch.zeros(x.shape[0], E, N), []
        for t in range(T):
            h = a[:, t] * h + bu[:, t]
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return self.out((torch.stack(ys, dim=1) + self.d * u) * F.silu(z))


net = Mamba()
opt = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
sequence = torch.tensor(normal(2, 9, D, seed=1))
for i in range(6):
    x = normal(2, 9, D, seed=i + 2)
    opt.zero_grad()
    loss = (net(torch.tensor(x)) - torch.tensor(np.roll(x, 1, axis=1))).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    if i % 2:
        y = net(sequence).tolist()
        log("whole", y)
        log("one by one", y)
log("a", net.a_log.tolist())
log("d", net.d.tolist())
