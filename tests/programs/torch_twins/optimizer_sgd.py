import torch
from common import log, normal

x, y = torch.tensor(normal(9, 4, seed=1)), torch.tensor(normal(9, 3, seed=2))


def run(**options):
    w, b = torch.tensor(normal(4, 3, seed=3), requires_grad=True), torch.tensor(normal(3, seed=4), requires_grad=True)
    opt, losses = torch.optim.SGD([w, b], **options), []
    for _ in range(6):
        opt.zero_grad()
        loss = ((x @ w + b) - y).square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    log("losses", losses)
    log("w", w.tolist())
    log("b", b.tolist())


for jitted in (False, True):
    run(lr=0.1)
    run(lr=0.05, momentum=0.9)
    run(lr=0.05, momentum=0.9, nesterov=True)
    run(lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True)
