"""Learning rates that change: assigned to opt.lr with warm-up and cosine by hand, the library's scheduler, both
seen by a jitted step."""

import math

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.lr_scheduler import CosineAnnealingLR

x, y = Tensor(normal(10, 4, seed=1)).realize(), Tensor(normal(10, 2, seed=2)).realize()


def build():
    w = Tensor(normal(4, 2, seed=3))
    opt = nn.optim.SGD([w], lr=0.3, momentum=0.9)

    @TinyJit
    def step(x, y):
        opt.zero_grad()
        loss = (x @ w - y).square().mean()
        loss.backward()
        opt.step()
        return loss.realize()

    return w, opt, step


with Context(TRAINING=1):
    w, opt, step = build()
    for i in range(8):
        rate = 0.3 * (i + 1) / 3 if i < 3 else 0.15 * (1 + math.cos(math.pi * (i - 3) / 5))
        opt.lr.assign(Tensor([rate])).realize()
        log("loss", step(x, y).item())
        log("rate", opt.lr.item())
    log("w", w.numpy())

    w, opt, step = build()
    schedule = CosineAnnealingLR(opt, T_max=8)
    for i in range(8):
        log("loss", step(x, y).item())
        schedule.step()
        log("rate", opt.lr.item())
    log("w", w.numpy())
