import numpy as np
import torch
from common import initial, log, normal


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = torch.nn.Linear(4, 16), torch.nn.Linear(16, 3), torch.nn.Linear(16, 1)

    def forward(self, s):
        h = self.body(s).tanh()
        return self.pi(h).log_softmax(-1), self.v(h).squeeze(-1)


net = Policy()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.01)
T, GAMMA, LAM = 32, 0.95, 0.9
drift = normal(3, 4, seed=3) * 0.3
for episode in range(3):
    state, rows = normal(1, 4, seed=episode) * 0.5, []
    gumbel = -np.log(-np.log(np.random.RandomState(50 + episode).uniform(0.01, 0.99, (T, 3))))
    for t in range(T):
        with torch.no_grad():
            logp, v = net(torch.tensor(state))
        lp = logp.numpy()[0]
        a = int((lp + gumbel[t]).argmax())
        new = (state * 0.9 + drift[a]).astype(np.float32)
        rows.append((state[0], a, lp[a], v.item(), -float(np.abs(new).sum())))
        state = new
    s, a, old, val, rew = (np.array(c, dtype=np.float32) for c in zip(*rows))
    adv, last = np.zeros(T, np.float32), 0.0
    for t in reversed(range(T)):
        nxt = val[t + 1] if t + 1 < T else 0.0
        last = rew[t] + GAMMA * nxt - val[t] + GAMMA * LAM * last
        adv[t] = last
    ret = adv + val
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    log("actions", a.astype(np.int64))
    for epoch in range(2):
        order = np.random.RandomState(90 + episode * 2 + epoch).permutation(T)
        clip = 0.2 if epoch == 0 else 0.1
        for idx in order.reshape(2, -1):
            opt.zero_grad()
            logp, v = net(torch.tensor(s[idx]))
            taken = logp.gather(1, torch.tensor(a[idx], dtype=torch.int64).reshape(-1, 1)).squeeze(1)
            ratio = (taken - torch.tensor(old[idx])).exp()
            ad = torch.tensor(adv[idx])
            surrogate = torch.minimum(ratio * ad, ratio.clamp(1 - clip, 1 + clip) * ad)
            entropy = -(logp.exp() * logp).sum(1).mean()
            loss = -surrogate.mean() + 0.5 * (v - torch.tensor(ret[idx])).square().mean() - 0.01 * entropy
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            log(
                "loss, norm, clipped",
                np.array([loss.item(), norm.item(), ((ratio - 1).abs() > clip).float().mean().item()]),
            )
log("policy", net.pi.weight.tolist())
