"""A U-Net with group norms, skips, strided and transposed convolutions and a time embedding: a jitted training step,
weights averaged by hand, and between epochs a jitted sampler that runs the averaged network."""

import copy

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

STEPS, C = 6, 8
betas = np.linspace(0.05, 0.4, STEPS, dtype=np.float32)
bars = np.cumprod(1 - betas)


class Res:
    def __init__(self, a, b):
        self.n1, self.c1, self.t = nn.GroupNorm(2, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(C, b)
        self.n2, self.c2 = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else (lambda x: x)

    def __call__(self, x, t):
        h = self.c1(self.n1(x).silu()) + self.t(t).reshape(x.shape[0], -1, 1, 1)
        return self.c2(self.n2(h).silu()) + self.skip(x)


class UNet:
    def __init__(self):
        self.time, self.inp = [nn.Linear(C, C), Tensor.silu, nn.Linear(C, C)], nn.Conv2d(1, C, 3, padding=1)
        self.r1, self.down, self.r2 = Res(C, C), nn.Conv2d(C, C, 3, stride=2, padding=1), Res(C, 2 * C)
        self.up, self.r3, self.out = nn.ConvTranspose2d(2 * C, C, 4, stride=2, padding=1), Res(2 * C, C), nn.Conv2d(C,
                1, 1)

    def __call__(self, x, t):
        freqs = (-np.log(10.0) * Tensor.arange(C // 2) / (C // 2)).exp()
        angles = t.reshape(-1, 1).float() * freqs
        t = angles.sin().cat(angles.cos(), dim=1).sequential(self.time)
        a = self.r1(self.inp(x), t)
        b = self.r2(self.down(a), t)
        return self.out(self.r3(self.up(b).cat(a, dim=1), t))


net = UNet()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
average = copy.deepcopy(net)
opt = nn.optim.Adam(get_parameters(net), lr=2e-3)
bars_t = Tensor(bars)


@TinyJit
@Tensor.train()
def train(x, t, noise):
    bar = bars_t[t].reshape(-1, 1, 1, 1)
    loss = (net(bar.sqrt() * x + (1 - bar).sqrt() * noise, t) - noise).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for a, p in zip(get_parameters(average), get_parameters(net)):
        a.assign(0.8 * a + 0.2 * p.detach())
    return loss.realize(*get_parameters(average))


@TinyJit
def denoise(x, t):
    return average(x, t.expand(x.shape[0])).realize()


for epoch in range(3):
    for i in range(3):
        seed = 3 * epoch + i
        rows = np.linspace(-1, 1, 8, dtype=np.float32)
        x = rows[None, None, :, None] * normal(4, 1, 1, 1, seed=seed) + rows * normal(4, 1, 1, 1, seed=seed + 50)
        log("loss", train(Tensor(x), Tensor(integers(STEPS, 4, seed=seed)),
                          Tensor(normal(4, 1, 8, 8, seed=100 + seed))).item())
    x = normal(2, 1, 8, 8, seed=7)
    for t in reversed(range(STEPS)):
        e = denoise(Tensor(x), Tensor([t])).numpy()
        x = (x - betas[t] / np.sqrt(1 - bars[t]) * e) / np.sqrt(1 - betas[t])
        if t:
            x = x + np.sqrt(betas[t]) * normal(2, 1, 8, 8, seed=200 + t)
        x = x.astype(np.float32)
    log("sample", x, rtol=5e-4)
