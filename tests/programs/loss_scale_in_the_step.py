"""Mixed precision by hand under a captured step: half-precision copies of float32 weights made in the step, a loss
scale held in a tensor that falls on overflow and rises again without leaving the captured function, gradients
accumulated over three calls, quantised activations with straight-through gradients."""

import numpy as np
from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, dtypes

w1, w2 = Tensor(normal(6, 16, seed=1) * 0.4).realize(), Tensor(normal(16, 2, seed=2) * 0.4).realize()
params = [w1, w2]
sums = [Tensor.zeros(*p.shape).contiguous().realize() for p in params]
scale, good = Tensor([2.0**12]).realize(), Tensor([0]).realize()


def fake_quantise(x):
    step = x.abs().max().detach() / 15
    return x + ((x / step).round() * step - x).detach()


@TinyJit
def accumulate(x, y):
    h1, h2 = (p.cast(dtypes.bfloat16).cast(dtypes.float32) for p in params)
    out = fake_quantise((x @ h1).relu()) @ h2
    loss = (out - y).square().mean()
    for s, g in zip(sums, (loss * scale).sum().gradient(*params)):
        s.assign(s + g)
    return loss.realize(*sums)


@TinyJit
def update(rate):
    finite = Tensor.stack(*[(s.abs() < 1e4).all() for s in sums]).all()
    for p, s in zip(params, sums):
        p.assign(finite.where(p.detach() - rate * s / (3 * scale), p.detach()))
    new = finite.where(good + 1, 0)
    scale.assign(finite.where((new % 2 == 0).where(scale * 2, scale), scale / 4))
    good.assign(new)
    Tensor.realize(*params, scale, good)
    for s in sums:
        s.assign(Tensor.zeros(*s.shape)).realize()
    return finite.realize()


for i in range(9):
    losses = []
    for k in range(3):
        x = normal(8, 6, seed=3 * i + k)
        losses.append(accumulate(Tensor(x), Tensor(np.tanh(x[:, :2]))).item())
    log("losses", losses, rtol=1e-3)
    log("gradient", (sums[1] / scale).numpy(), rtol=1e-3)
    log("finite", update(Tensor([0.3 if i < 5 else 0.1])).item())
    log("scale", scale.item())
log("good", good.item())
log("weight", w1.numpy(), rtol=1e-3)
