import copy

import torch
from common import initial, log, normal

x, y = torch.tensor(normal(16, 3, seed=1)), torch.tensor(normal(16, 2, seed=2))
vx, vy = torch.tensor(normal(16, 3, seed=3)), torch.tensor(normal(16, 2, seed=4))
w0, b0 = torch.tensor(normal(3, 2, seed=5), requires_grad=True), torch.tensor(normal(2, seed=6), requires_grad=True)


def inner(rates, momentum, decay=None, show=False):
    w, b = w0, b0
    mw = mb = 0.0
    for i in range(6):
        loss = ((x @ w + b).tanh() - y).square().mean()
        if decay is not None:
            loss = loss + decay * w.square().sum()
        if show and i % 2 == 0:
            log("inner", loss.item())
        gw, gb = torch.autograd.grad(loss, [w, b], create_graph=True)
        mw, mb = momentum * mw + gw, momentum * mb + gb
        w, b = w - rates[0].exp() * mw, b - rates[1].exp() * mb
    return ((vx @ w + b).tanh() - vy).square().mean()


rates, momentum = [torch.tensor([-1.0], requires_grad=True),
                   torch.tensor([-2.0], requires_grad=True)], torch.tensor([0.5], requires_grad=True)
opt = torch.optim.Adam([*rates, momentum], lr=0.1)
for i in range(4):
    loss = inner(rates, momentum.sigmoid(), show=True)
    opt.zero_grad()
    loss.backward()
    log("gradients", [p.grad.item() for p in [*rates, momentum]])
    opt.step()
    log("outer", loss.item())
decay = torch.tensor(0.05, requires_grad=True)
log("hypergradient", torch.autograd.grad(inner(rates, momentum.sigmoid(), decay), decay)[0].item())
net = torch.nn.Module()
net.layers = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
for task in range(4):
    fast = copy.deepcopy(net)
    inner_opt = torch.optim.SGD(fast.parameters(), lr=0.1)
    tx = torch.tensor(normal(10, 1, seed=20 + task))
    for _ in range(3):
        loss = (fast.layers(tx) - (tx + task).sin()).square().mean()
        inner_opt.zero_grad()
        loss.backward()
        inner_opt.step()
    log("task", loss.item())
    with torch.no_grad():
        for slow, new in zip(net.parameters(), fast.parameters()):
            slow += 0.4 * (new - slow)
    log("slow", net.layers[0].weight.tolist())
