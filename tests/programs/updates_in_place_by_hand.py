"""No optimizer: `w -= rate * gradient`, momentum buffers with `*=` and `+=`, Adagrad, each in the styles that
people write."""

from common import log, normal
from tinygrad_cpp import Tensor, TinyJit

x, y = Tensor(normal(10, 4, seed=1)).realize(), Tensor(normal(10, 2, seed=2)).realize()


def start():
    return Tensor(normal(4, 2, seed=3)).realize(), Tensor(normal(2, seed=4)).realize()


def loss_of(w, b):
    return ((x @ w + b).tanh() - y).square().mean()


w, b = start()
for _ in range(4):
    loss = loss_of(w, b)
    log("loss", loss.item())
    gw, gb = loss.gradient(w, b)
    w -= 0.5 * gw
    b -= 0.5 * gb
log("w", w.numpy())

w, b = start()
for _ in range(4):
    loss = loss_of(w, b)
    loss.backward()
    for p in (w, b):
        p.assign(p.detach() - 0.5 * p.grad).realize()
        p.grad = None
    log("loss", loss.item())
log("w", w.numpy())

w, b = start()
speeds = [Tensor.zeros_like(w).contiguous().realize(), Tensor.zeros_like(b).contiguous().realize()]
for _ in range(4):
    loss = loss_of(w, b)
    loss.backward()
    log("loss", loss.item())
    for p, v in zip((w, b), speeds):
        v *= 0.9
        v += p.grad
        p -= 0.2 * v
        p.grad = None
        p.realize()
log("w", w.numpy())

w, b = start()
squares = [Tensor.zeros_like(w).contiguous().realize(), Tensor.zeros_like(b).contiguous().realize()]


@TinyJit
def adagrad():
    loss = loss_of(w, b)
    for p, s, g in zip((w, b), squares, loss.gradient(w, b)):
        s += g * g
        p -= 0.3 * g / (s.sqrt() + 1e-8)
    return loss.realize(w, b, *squares)


for _ in range(6):
    log("loss", adagrad().item())
log("w", w.numpy())
log("squares", squares[1].tolist())
