import copy

import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Q(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(3, 10), torch.nn.Linear(10, 4)

    def forward(self, x):
        return self.l2(self.l1(x).relu())


online = Q()
online.load_state_dict({k: torch.tensor(v) for k, v in initial(online.state_dict()).items()})
target = copy.deepcopy(online)
opt = torch.optim.Adam(online.parameters(), lr=0.02)
memory = torch.zeros(32, 3)
for step in range(8):
    memory[step * 4 : step * 4 + 4] = torch.tensor(normal(4, 3, seed=step))
    rows = torch.tensor(integers(step * 4 + 4, 6, seed=50 + step)).long()
    s, s2 = memory[rows], memory[(rows + 1) % (step * 4 + 4)]
    a, r = torch.tensor(integers(4, 6, seed=80 + step)).long(), torch.tensor(normal(6, seed=90 + step))
    wanted = (r + 0.9 * target(s2).gather(1, online(s2).argmax(1, keepdim=True)).squeeze(1)).detach()
    opt.zero_grad()
    loss = F.smooth_l1_loss(online(s).gather(1, a.unsqueeze(1)).squeeze(1), wanted)
    loss.backward()
    opt.step()
    log("loss", loss.item())
    if step % 3 == 2:
        target.load_state_dict(online.state_dict())
    log("target", target(s)[0].tolist())
log("memory", memory.sum(0).tolist())
log("weight", online.l1.weight.tolist())
