"""Spectral normalisation by hand: u and v are buffers assigned in the forward pass by power iteration without
gradient."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn


class SpectralLinear:
    def __init__(self, n_in, n_out, seed):
        self.weight, self.bias = Tensor(normal(n_out, n_in, seed=seed)), Tensor.zeros(n_out)
        self.u = Tensor(normal(n_out, seed=seed + 1)).is_param_(False).realize()

    def __call__(self, x):
        w = self.weight.detach()
        v = w.T @ self.u
        v = v / v.square().sum().sqrt()
        u = w @ v
        u = u / u.square().sum().sqrt()
        self.u.assign(u.contiguous())
        sigma = (u.detach() * (self.weight @ v.detach())).sum()
        return x @ (self.weight / sigma).T + self.bias


x, y = Tensor(normal(9, 5, seed=1)).realize(), Tensor(normal(9, 2, seed=2)).realize()
for jitted in (False, True):
    a, b = SpectralLinear(5, 7, 10), SpectralLinear(7, 2, 20)
    opt = nn.optim.SGD([a.weight, a.bias, b.weight, b.bias], lr=0.3)

    def step(x, y):
        opt.zero_grad()
        loss = (b(a(x).relu()) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.realize(a.u, b.u)

    step = TinyJit(step) if jitted else step
    with Context(TRAINING=1):
        for i in range(6):
            log("loss", step(x, y).item())
            log("u", a.u.tolist())
    log("weight", a.weight.numpy())
