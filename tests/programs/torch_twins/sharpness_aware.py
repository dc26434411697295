import torch
from common import initial, log, normal


def setup():
    net = torch.nn.Module()
    net.a, net.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    params = list(net.parameters())
    return net, params, torch.optim.SGD(params, lr=0.2, momentum=0.9, nesterov=True)


for _ in range(2):
    net, params, opt = setup()
    slow = [p.detach().clone() for p in params]
    for i in range(7):
        x, y = torch.tensor(normal(10, 4, seed=i)), torch.tensor(normal(10, 2, seed=50 + i))
        opt.zero_grad()
        first = (net.b(net.a(x).tanh()) - y).square().mean()
        first.backward()
        with torch.no_grad():
            norm = sum(p.grad.square().sum() for p in params).sqrt()
            moves = [0.1 * p.grad / (norm + 1e-12) for p in params]
            for p, m in zip(params, moves):
                p += m
        opt.zero_grad()
        second = (net.b(net.a(x).tanh()) - y).square().mean()
        second.backward()
        with torch.no_grad():
            for p, m in zip(params, moves):
                p -= m
        opt.step()
        log("losses and norm", [first.item(), second.item(), norm.item()])
        if i % 3 == 2:
            with torch.no_grad():
                for p, s in zip(params, slow):
                    s += 0.5 * (p - s)
                    p.copy_(s)
            log("slow", slow[1].tolist())
    log("weight", net.a.weight.tolist())
net, params, opt = setup()
for i in range(5):
    x, y = torch.tensor(normal(6, 4, seed=i)), torch.tensor(normal(6, 2, seed=20 + i))
    out = net.b(net.a(x).tanh())
    losses = [(out[:, 0] - y[:, 0]).square().mean(), (out[:, 1] + y[:, 0]).abs().mean()]
    grads = [torch.autograd.grad(loss, params, retain_graph=True) for loss in losses]
    dots = [sum((a * b).sum() for a, b in zip(*grads)).item(), *(sum((a * a).sum() for a in g).item() for g in grads)]
    log("dots", dots)
    if dots[0] < 0:
        grads = [
            [a - dots[0] / dots[2] * b for a, b in zip(*grads)],
            [b - dots[0] / dots[1] * a for a, b in zip(*grads)],
        ]
    for p, a, b in zip(params, *grads):
        p.grad = a + b
    opt.step()
    log("losses", [loss.item() for loss in losses])
log("weight", net.a.weight.tolist())
