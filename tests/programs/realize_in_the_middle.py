"""realize() at the places where programs call it: on data, parameters, gradients, the loss, running sums, and on
copies of hidden values."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

w = Tensor(normal(5, 5, seed=1)).realize()
scale = Tensor(normal(5, seed=2)).realize()
opt = nn.optim.SGD([w, scale], lr=0.02, momentum=0.5)
x = Tensor(normal(10, 5, seed=3)).realize()
seen = Tensor.zeros(5).contiguous().realize()
total = Tensor(0.0)
with Context(TRAINING=1):
    for step in range(6):
        opt.zero_grad()
        h = (x @ w).tanh()
        mean = h.mean(axis=0)
        seen.assign(seen * 0.9 + mean.detach() * 0.1).realize()
        copy = h.detach().realize()
        out = h * scale
        loss = (out.sum(axis=1) - copy.sum(axis=1) * 0.5).square().mean()
        loss.backward()
        Tensor.realize(w.grad, scale.grad)
        loss.realize()
        total = (total + loss.detach()).realize()
        opt.step()
        log("loss", loss.item())
        log("gradient", w.grad.square().sum().sqrt().item())
log("seen", seen.numpy())
log("total", total.item())
log("w", w.numpy())
