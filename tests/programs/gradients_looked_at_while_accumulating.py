"""Gradients are read between the backward() calls that add to them: two biases with one gradient, a residual, hidden
values that stay alive, several heads on one trunk."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

w, b1, b2 = Tensor(normal(4, 3, seed=1)), Tensor(normal(3, seed=2)), Tensor(normal(3, seed=3))
opt = nn.optim.SGD([w, b1, b2], lr=0.1, momentum=0.9)
X, Y = normal(3, 4, 6, 4, seed=4), normal(3, 4, 6, 3, seed=5)
with Context(TRAINING=1):
    for step in range(3):
        opt.zero_grad()
        for micro in range(4):
            x, y = Tensor(X[step, micro]), Tensor(Y[step, micro])
            ((x @ w + b1 + b2) - y).square().mean().backward()
            log("gradients", [b1.grad.tolist(), b2.grad.tolist()])
            log("norm", w.grad.square().sum().sqrt().item())
        opt.step()
log("w", w.numpy())

x, skip = Tensor(normal(5, seed=6)), Tensor(normal(5, seed=7))
hidden = x + skip
inner = hidden - 1
for name, loss in (("square", inner.square().sum()), ("sum", (hidden * 3).sum()), ("both", (hidden * inner).sum())):
    loss.backward()
    log(name, [x.grad.tolist(), skip.grad.tolist()])
    log("value", loss.item())

trunk = Tensor(normal(4, seed=8))
heads = [(trunk * i).sum() for i in range(1, 4)] + [trunk[1:].sum(), trunk.pad(((0, 2),)).square().sum()]
for head in heads:
    head.backward()
    log("trunk", trunk.grad.tolist())
trunk.grad.assign(trunk.grad.clip(-5, 5)).realize()
heads[0].backward()
log("after clipping", trunk.grad.tolist())
