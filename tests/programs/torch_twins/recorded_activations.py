import dataclasses

import numpy as np
import torch
from common import initial, log, normal


class Watched(torch.nn.Linear):
    def forward(self, x):
        self.seen = super().forward(x)
        return self.seen.tanh()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = Watched(4, 6), Watched(6, 6), torch.nn.Linear(6, 2)

    def forward(self, x):
        h = self.a(x)
        return self.c(self.b(h) + self.b(h * 0.5))


net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
x, y = torch.tensor(normal(9, 4, seed=1)), torch.tensor(normal(9, 2, seed=2))
everything = list(net.parameters())
head = torch.optim.SGD(net.c.parameters(), lr=0.1)
body = torch.optim.Adam([*net.a.parameters(), *net.b.parameters()], lr=0.02)
for i in range(7):
    net.zero_grad()
    out = net(x)
    log("shape", repr(tuple(out.shape)))
    loss = (out - y).abs().mean() + 0.01 * sum(p.square().sum() for p in everything)
    log("loss", loss.item())
    (watched,) = torch.autograd.grad(loss, net.a.seen, retain_graph=True)
    log("activation", net.a.seen.mean(0).tolist())
    log("its gradient", watched.mean(0).tolist())
    loss.backward()
    log("norms", [p.grad.square().sum().sqrt().item() for p in everything])
    head.step()
    if not 2 <= i < 5:
        body.step()
log("weights", np.concatenate([p.detach().numpy().ravel() for p in everything]))


@dataclasses.dataclass
class State:
    w: torch.Tensor
    b: torch.Tensor
    step: int = 0


def update(s, x, y):
    w, b = s.w.clone().requires_grad_(), s.b.clone().requires_grad_()
    loss = ((x @ w + b).sigmoid() - y).square().mean()
    gw, gb = torch.autograd.grad(loss, [w, b])
    scale = 1.0 / np.sqrt(1 + s.step)
    return dataclasses.replace(s, w=(w - scale * gw).detach(), b=(b - scale * gb).detach(), step=s.step + 1), loss


state, history = State(torch.tensor(normal(4, 2, seed=3)), torch.zeros(2)), []
for i in range(12):
    state, loss = update(state, x, y)
    history.append((state, loss))
    if i == 6:
        state = history[2][0]
log("losses", [loss.item() for _, loss in history])
log("restarted", [s.b.tolist() for s, _ in history[::3]])
log("w", state.w.tolist())
