"""A Wasserstein GAN on images with a gradient penalty: second derivatives through convolutions inside of two jitted
steps that share the critic; the critic is frozen while the generator trains, samples are looked at in between."""

import numpy as np
from common import initial, log, normal, uniform
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class G:
    def __init__(self):
        self.inp, self.c1, self.c2 = nn.Linear(4, 8 * 2 * 2), nn.ConvTranspose2d(8, 4, 4, stride=2,
                padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)

    def __call__(self, z):
        return self.c2(self.c1(self.bn(self.inp(z).reshape(-1, 8, 2, 2)).relu()).relu()).tanh()


class D:
    def __init__(self):
        self.c1, self.c2, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 4, stride=2,
                padding=1), nn.Linear(32, 1)

    def __call__(self, x):
        return self.out(self.c2(self.c1(x).softplus()).softplus().flatten(1))


g, d = G(), D()
for net in (g, d):
    state = get_state_dict(net)
    load_state_dict(net, {k: Tensor(v) for k, v in initial(state).items() if "num_batches" not in k}, strict=False,
                    verbose=False)
opt_g = nn.optim.Adam(get_parameters(g), lr=0.01, b1=0.0, b2=0.9)
opt_d = nn.optim.Adam(get_parameters(d), lr=0.01, b1=0.0, b2=0.9)


@TinyJit
def critic(real, z, mix):
    fake = g(z).detach()
    between = (mix * real + (1 - mix) * fake).requires_grad_() if hasattr(Tensor,
            "requires_grad_") else mix * real + (1 - mix) * fake
    slope = d(between).sum().gradient(between)[0]
    penalty = ((slope.square().sum((1, 2, 3)) + 1e-12).sqrt() - 1).square().mean()
    loss = d(fake).mean() - d(real).mean() + 10 * penalty
    opt_d.zero_grad()
    loss.backward()
    opt_d.step()
    return loss.realize(), penalty.realize()


@TinyJit
def generator(z):
    fake = g(z)
    loss = -d(fake).mean()
    opt_g.zero_grad()
    opt_d.zero_grad()
    loss.backward()
    opt_g.step()
    return loss.realize(), fake.realize()


for i in range(5):
    with Context(TRAINING=1):
        for k in range(2):
            seed = 2 * i + k
            out = critic(Tensor(normal(4, 1, 4, 4, seed=seed)), Tensor(normal(4, 4, seed=50 + seed)),
                         Tensor(uniform(4, 1, 1, 1, seed=90 + seed)))
            log("critic", np.array([o.item() for o in out]), rtol=1e-3)
        loss, fake = generator(Tensor(normal(4, 4, seed=150 + i)))
        log("generator", loss.item(), rtol=1e-3)
        log("fake", fake.mean(0).numpy(), rtol=1e-3)
    log("evaluated", g(Tensor(normal(2, 4, seed=5))).numpy(), rtol=1e-3)
log("statistics", g.bn.running_mean.numpy(), rtol=1e-3)
log("weight", d.c1.weight.numpy(), rtol=1e-3)
