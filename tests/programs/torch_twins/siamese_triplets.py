import numpy as np
import torch
from common import initial, log, normal

net = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.Tanh(), torch.nn.Linear(12, 4, bias=False))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.02)
centres = normal(4, 5, seed=1)
labels = np.arange(12) % 4
for step in range(6):
    embedded = net(torch.tensor(centres[labels] + 0.3 * normal(12, 5, seed=20 + step)))
    distance = (embedded.unsqueeze(1) - embedded.unsqueeze(0)).square().sum(2)
    d = distance.detach().numpy()
    same = labels[:, None] == labels[None]
    positive, negative = np.where(same, d, -1).argmax(1), np.where(same, np.inf, d).argmin(1)
    log("mined", [positive.tolist(), negative.tolist()])
    rows = torch.arange(12)
    loss = (distance[rows, torch.tensor(positive)] - distance[rows, torch.tensor(negative)] + 0.5).relu().mean()
    log("loss", loss.item())
    opt.zero_grad()
    loss.backward()
    opt.step()
log("centres", net(torch.tensor(centres)).tolist())
