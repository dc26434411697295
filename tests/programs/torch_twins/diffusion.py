import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

STEPS = 10
beta = np.linspace(0.02, 0.3, STEPS, dtype=np.float32)
alpha_bar = np.cumprod(1 - beta).astype(np.float32)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.l1, self.l2, self.l3 = (
            torch.nn.Embedding(STEPS, 8),
            torch.nn.Linear(2, 16),
            torch.nn.Linear(8, 16),
            torch.nn.Linear(16, 2),
        )

    def forward(self, x, t):
        return self.l3(F.silu(self.l1(x) + self.l2(self.time(t))))


net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.01)
scale, x = torch.tensor(alpha_bar), torch.tensor(normal(20, 2, seed=1) * 0.2 + 1)
for i in range(8):
    t, noise = torch.tensor(integers(STEPS, 20, seed=10 + i)).long(), torch.tensor(normal(20, 2, seed=30 + i))
    opt.zero_grad()
    a = scale[t].unsqueeze(1)
    loss = (net(a.sqrt() * x + (1 - a).sqrt() * noise, t) - noise).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
sample = torch.tensor(normal(6, 2, seed=50))
for t in reversed(range(STEPS)):
    noise = net(sample, torch.full((6,), t))
    mean = (sample - float(beta[t] / np.sqrt(1 - alpha_bar[t])) * noise) / float(np.sqrt(1 - beta[t]))
    sample = mean + float(np.sqrt(beta[t])) * torch.tensor(normal(6, 2, seed=60 + t)) if t else mean
    log("sample", sample.tolist())
