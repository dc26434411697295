import numpy as np
import torch
from common import initial, log

f = torch.nn.Sequential(torch.nn.Linear(2, 12), torch.nn.Tanh(), torch.nn.Linear(12, 2))
f.load_state_dict({k: torch.tensor(v) for k, v in initial(f.state_dict()).items()})
opt = torch.optim.Adam(f.parameters(), lr=0.02)
time = np.linspace(0, 2, 9, dtype=np.float32)
target = torch.tensor(np.stack([np.exp(-0.2 * time) * np.cos(2 * time), np.exp(-0.2 * time) * np.sin(2 * time)], 1))
h = float(time[1] - time[0])


def runge_kutta(x):
    k1 = f(x)
    k2 = f(x + h / 2 * k1)
    k3 = f(x + h / 2 * k2)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(x + h * k3))


for method in (lambda x: x + h * f(x), runge_kutta):
    for step in range(4):
        opt.zero_grad()
        path = [torch.tensor([[1.0, 0.0]])]
        for _ in range(8):
            path.append(method(path[-1]))
        loss = (torch.cat(path) - target).square().mean()
        log("end", path[-1].tolist())
        loss.backward()
        opt.step()
        log("loss", loss.item())
log("weight", f[0].weight.tolist())
