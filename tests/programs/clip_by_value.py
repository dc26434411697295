"""Gradients clipped value by value, some of them read before and after; the library's own clip_grad_norm in the
second half."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.train import clip_grad_norm, clip_grad_value

x, y = Tensor(normal(8, 3, seed=1)), Tensor(normal(8, 3, seed=2) * 4)
w, b = Tensor(normal(3, 3, seed=3)), Tensor.zeros(3)
opt = nn.optim.SGD([w, b], lr=0.1, momentum=0.5)
with Context(TRAINING=1):
    for i in range(3):
        opt.zero_grad()
        loss = (x @ w + b - y).square().sum()
        loss.backward()
        log("largest", max(p.grad.abs().max().item() for p in (w, b)))
        for p in (w, b):
            p.grad = p.grad.clip(-0.5, 0.5)
        log("clipped", w.grad.tolist())
        opt.step()
        log("loss", loss.item())
    for i in range(3):
        opt.zero_grad()
        loss = (x @ w + b - y).square().sum()
        loss.backward()
        if i % 2:
            clip_grad_value([w, b], 0.25)
        else:
            log("norm", clip_grad_norm([w, b], 2.0).item())
        opt.step()
        log("loss", loss.item())
log("w", w.numpy())
