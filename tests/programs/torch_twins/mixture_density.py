import math

import numpy as np
import torch
from common import initial, log, uniform


class MDN(torch.nn.Module):
    def __init__(self, components=3):
        super().__init__()
        self.hidden = torch.nn.Linear(1, 12)
        self.weights, self.means, self.widths = (torch.nn.Linear(12, components) for _ in range(3))

    def forward(self, x):
        h = self.hidden(x).tanh()
        return self.weights(h).log_softmax(-1), self.means(h), self.widths(h)


net = MDN()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.AdamW(net.parameters(), lr=0.02)
y = np.linspace(0, 1, 20, dtype=np.float32)[:, None]
x = torch.tensor((y + 0.3 * np.sin(2 * np.pi * y) + 0.05 * uniform(20, 1, seed=1)).astype(np.float32))
y = torch.tensor(y)
for step in range(6):
    opt.zero_grad()
    weight, mean, log_width = net(x)
    component = weight - 0.5 * ((y - mean) * (-log_width).exp()).square() - log_width - 0.5 * math.log(2 * math.pi)
    loss = -component.logsumexp(1).mean()
    log("responsibilities", component.softmax(1)[0].tolist())
    log("loss", loss.item())
    loss.backward()
    opt.step()
log("expected", (net(x)[0].exp() * net(x)[1]).sum(1).tolist())
