import torch
from common import log, normal

w, b1, b2 = (torch.tensor(v, requires_grad=True) for v in (normal(4, 3, seed=1), normal(3, seed=2), normal(3, seed=3)))
opt = torch.optim.SGD([w, b1, b2], lr=0.1, momentum=0.9)
X, Y = torch.tensor(normal(3, 4, 6, 4, seed=4)), torch.tensor(normal(3, 4, 6, 3, seed=5))
for step in range(3):
    opt.zero_grad()
    for micro in range(4):
        ((X[step, micro] @ w + b1 + b2) - Y[step, micro]).square().mean().backward()
        log("gradients", [b1.grad.tolist(), b2.grad.tolist()])
        log("norm", w.grad.norm().item())
    opt.step()
log("w", w.tolist())

x, skip = (torch.tensor(normal(5, seed=s), requires_grad=True) for s in (6, 7))
hidden = x + skip
inner = hidden - 1
for name, loss in (("square", inner.square().sum()), ("sum", (hidden * 3).sum()), ("both", (hidden * inner).sum())):
    loss.backward(retain_graph=True)
    log(name, [x.grad.tolist(), skip.grad.tolist()])
    log("value", loss.item())

trunk = torch.tensor(normal(4, seed=8), requires_grad=True)
heads = [(trunk * i).sum() for i in range(1, 4)]
heads += [trunk[1:].sum(), torch.nn.functional.pad(trunk, (0, 2)).square().sum()]
for head in heads:
    head.backward(retain_graph=True)
    log("trunk", trunk.grad.tolist())
trunk.grad.clamp_(-5, 5)
heads[0].backward()
log("after clipping", trunk.grad.tolist())
