"""Gradients of four micro-batches are added up before a step: backward() adds to .grad. Eager, and with two jitted
functions."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

X, Y = normal(5, 4, 6, 3, seed=1), normal(5, 4, 6, 2, seed=2)
w, b = Tensor(normal(3, 2, seed=3)), Tensor(normal(2, seed=4))
opt = nn.optim.SGD([w, b], lr=0.1, momentum=0.9)


def loss_of(x, y):
    return ((x @ w + b).sigmoid() - y).square().mean() / 4


with Context(TRAINING=1):
    for step in range(5):
        opt.zero_grad()
        total = 0.0
        for micro in range(4):
            loss = loss_of(Tensor(X[step, micro]), Tensor(Y[step, micro]))
            loss.backward()
            total += loss.item()
        log("gradient", w.grad.numpy())
        opt.step()
        log("loss", total)
log("w", w.numpy())

# The same with a jitted micro-step that adds to buffers of the program's own, and a jitted update.
w.assign(Tensor(normal(3, 2, seed=3))).realize()
b.assign(Tensor(normal(2, seed=4))).realize()
opt = nn.optim.SGD([w, b], lr=0.1, momentum=0.9)
sums = [Tensor.zeros(*p.shape).contiguous().realize() for p in (w, b)]


@TinyJit
def micro_step(x, y):
    loss = loss_of(x, y)
    for s, g in zip(sums, loss.gradient(w, b)):
        s.assign(s + g)
    return loss.realize(*sums)


@TinyJit
def update():
    for p, s in zip((w, b), sums):
        p.grad = s.clone()
    opt.step()
    for s in sums:
        s.assign(Tensor.zeros_like(s)).realize()


with Context(TRAINING=1):
    for step in range(5):
        total = sum(micro_step(Tensor(X[step, m]).realize(), Tensor(Y[step, m]).realize()).item() for m in range(4))
        log("gradient", sums[0].numpy())
        update()
        log("loss", total)
log("w", w.numpy())
