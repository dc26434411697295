"""DDPM on points of a plane: the net learns the noise of random times (jitted), then samples are made by the
reverse steps."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

STEPS = 10
beta = np.linspace(0.02, 0.3, STEPS, dtype=np.float32)
alpha_bar = np.cumprod(1 - beta).astype(np.float32)


class Net:
    def __init__(self):
        self.time, self.l1, self.l2, self.l3 = (
            nn.Embedding(STEPS, 8),
            nn.Linear(2, 16),
            nn.Linear(8, 16),
            nn.Linear(16, 2),
        )

    def __call__(self, x, t):
        return self.l3((self.l1(x) + self.l2(self.time(t))).silu())


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.01)
scale = Tensor(alpha_bar).realize()


@TinyJit
def step(x, t, noise):
    opt.zero_grad()
    a = scale[t].unsqueeze(1)
    noisy = a.sqrt() * x + (1 - a).sqrt() * noise
    loss = (net(noisy, t) - noise).square().mean()
    loss.backward()
    opt.step()
    return loss.realize()


x = Tensor(normal(20, 2, seed=1) * 0.2 + 1).realize()
with Context(TRAINING=1):
    for i in range(8):
        log(
            "loss",
            step(
                x, Tensor(integers(STEPS, 20, seed=10 + i)).realize(), Tensor(normal(20, 2, seed=30 + i)).realize()
            ).item(),
        )

sample = Tensor(normal(6, 2, seed=50))
for t in reversed(range(STEPS)):
    noise = net(sample, Tensor.full((6,), t, dtype="int32"))
    mean = (sample - float(beta[t] / np.sqrt(1 - alpha_bar[t])) * noise) / float(np.sqrt(1 - beta[t]))
    sample = mean + float(np.sqrt(beta[t])) * Tensor(normal(6, 2, seed=60 + t)) if t else mean
    log("sample", sample.numpy())
