import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Q(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.value, self.advantage = torch.nn.Linear(3, 16), torch.nn.Linear(16, 1), torch.nn.Linear(16, 4)

    def forward(self, s):
        h = self.l1(s).relu()
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


online, target = Q(), Q()
for q in (online, target):
    q.load_state_dict({k: torch.tensor(v) for k, v in initial(q.state_dict()).items()})
opt = torch.optim.SGD(online.parameters(), lr=0.05, momentum=0.9)
CAP = 24
states, nexts = torch.zeros(CAP, 3), torch.zeros(CAP, 3)
actions, rewards = torch.zeros(CAP, dtype=torch.int64), torch.zeros(CAP)
at = 0
for i in range(12):
    s = normal(4, 3, seed=i)
    a = online(torch.tensor(s)).argmax(-1).numpy() if i % 3 else integers(4, 4, seed=i)
    n = s * 0.5 + a[:, None] * 0.1
    r = np.cos(s.sum(1)) - 0.2 * a
    where = slice(at, at + 4)
    states[where], nexts[where] = torch.tensor(s), torch.tensor(n.astype(np.float32))
    actions[where] = torch.tensor(a.astype(np.int64))
    rewards[where] = torch.tensor(r.astype(np.float32))
    at = (at + 4) % CAP
    log("action", a.astype(np.int64))
    if i >= 2:
        idx = torch.tensor(integers(min(CAP, 4 * (i + 1)), 8, seed=100 + i)).long()
        bs, bn, ba, br = states[idx], nexts[idx], actions[idx], rewards[idx]
        with torch.no_grad():
            best = online(bn).argmax(-1, keepdim=True)
            goal = br + 0.9 * target(bn).gather(1, best).squeeze(1)
        q = online(bs).gather(1, ba.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("error", (q - goal).abs().tolist())
    if i % 4 == 3:
        with torch.no_grad():
            for p, q in zip(target.parameters(), online.parameters()):
                p.copy_(0.7 * p + 0.3 * q)
        log("target", target.l1.weight.tolist())
log("rewards", rewards.tolist())
log("actions", actions.tolist())
log("weight", online.advantage.weight.tolist())
