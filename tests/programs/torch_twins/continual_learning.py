import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
params = list(net.parameters())
opt = torch.optim.SGD(params, lr=0.2)
tasks = [(torch.tensor(normal(10, 5, seed=s)), torch.tensor(integers(3, 10, seed=s + 1)).long()) for s in (1, 11)]


def train(x, y, steps, penalty=lambda: 0):
    for _ in range(steps):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y) + penalty()
        loss.backward()
        opt.step()
        log("loss", loss.item())


train(*tasks[0], 5)
fisher = [torch.zeros_like(p) for p in params]
for x, y in zip(*tasks[0]):
    for f, g in zip(fisher, torch.autograd.grad(F.cross_entropy(net(x[None]), y[None]), params)):
        f += g.square() / 10
log("importance", [f.sum().item() for f in fisher])
old = [p.detach().clone() for p in params]
train(*tasks[1], 5, lambda: 2 * sum(((p - o).square() * f).sum() for p, o, f in zip(params, old, fisher)))
log("first task", F.cross_entropy(net(tasks[0][0]), tasks[0][1]).item())
log("moved", [(p - o).abs().max().item() for p, o in zip(params, old)])
train(*(torch.cat([a, b[:4]]) for a, b in zip(tasks[1], tasks[0])), 3)
log("both", [F.cross_entropy(net(x), y).item() for x, y in tasks])
