"""RealNVP: affine couplings with alternating masks, trained by exact likelihood; the inverse gives the data back."""

import math

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Coupling:
    def __init__(self, flip):
        self.flip, self.hidden, self.out = flip, nn.Linear(1, 8), nn.Linear(8, 2)

    def parameters(self, a):
        log_scale, shift = self.out(self.hidden(a).tanh()).chunk(2, dim=1)
        return log_scale.tanh(), shift

    def __call__(self, x):
        a, b = x.chunk(2, dim=1)
        a, b = (b, a) if self.flip else (a, b)
        log_scale, shift = self.parameters(a)
        b = b * log_scale.exp() + shift
        return (Tensor.cat(b, a, dim=1) if self.flip else Tensor.cat(a, b, dim=1)), log_scale.sum(axis=1)

    def inverse(self, z):
        a, b = z.chunk(2, dim=1)
        a, b = (b, a) if self.flip else (a, b)
        log_scale, shift = self.parameters(a)
        b = (b - shift) * (-log_scale).exp()
        return Tensor.cat(b, a, dim=1) if self.flip else Tensor.cat(a, b, dim=1)


flow = [Coupling(bool(i % 2)) for i in range(4)]
load_state_dict(flow, {k: Tensor(v) for k, v in initial(get_state_dict(flow)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(flow), lr=0.01)
data = normal(24, 2, seed=1)
data[:, 1] = data[:, 0] ** 2 * 0.5 + 0.3 * data[:, 1]
x = Tensor(data)
with Context(TRAINING=1):
    for step in range(5):
        z, total = x, Tensor.zeros(24)
        for layer in flow:
            z, determinant = layer(z)
            total = total + determinant
        likelihood = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi)).sum(axis=1) + total
        log("log likelihood", likelihood.numpy()[:4])
        loss = -likelihood.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())
z = Tensor(normal(5, 2, seed=2))
for layer in reversed(flow):
    z = layer.inverse(z)
log("samples", z.numpy())
for layer in flow:
    z, _ = layer(z)
log("back again", z.numpy(), atol=1e-5)  # exp and its inverse, four times
