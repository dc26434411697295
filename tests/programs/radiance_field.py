"""A radiance field: positional encoding with sines, densities along rays, transmittance by cumprod, colours summed."""

import math

from common import initial, log, normal, uniform
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

RAYS, SAMPLES = 6, 8


class Field:
    def __init__(self):
        self.l1, self.l2, self.l3 = nn.Linear(15, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def __call__(self, p):
        encoded = [p] + [f(p * 2.0**k * math.pi) for k in range(2) for f in (Tensor.sin, Tensor.cos)]
        return self.l3(self.l2(self.l1(Tensor.cat(*encoded, dim=-1)).relu()).relu())


def render(field, origin, direction):
    t = Tensor.linspace(0.5, 2.0, SAMPLES)
    points = origin.unsqueeze(1) + direction.unsqueeze(1) * t.reshape(1, SAMPLES, 1)
    raw = field(points)
    density, colour = raw[..., 0].softplus(), raw[..., 1:].sigmoid()
    alpha = 1 - (-density * (1.5 / (SAMPLES - 1))).exp()
    passed = (1 - alpha + 1e-10).cumprod(axis=1)
    weights = alpha * Tensor.ones(RAYS, 1).cat(passed[:, :-1], dim=1)
    return (weights.unsqueeze(2) * colour).sum(axis=1), (weights * t).sum(axis=1)


field = Field()
load_state_dict(field, {k: Tensor(v) for k, v in initial(get_state_dict(field)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(field), lr=0.005)


@TinyJit
@Context(TRAINING=1)
def step(origin, direction, wanted):
    opt.zero_grad()
    colour, depth = render(field, origin, direction)
    loss = (colour - wanted).square().mean()
    loss.backward()
    opt.step()
    return loss.realize(), depth.realize()


for i in range(5):
    origin, direction = Tensor(normal(RAYS, 3, seed=i) * 0.1), Tensor(normal(RAYS, 3, seed=20 + i) * 0.5)
    wanted = Tensor(uniform(RAYS, 3, seed=40 + i))
    loss, depth = step(origin.realize(), direction.realize(), wanted.realize())
    log("loss", loss.item())
    log("depth", depth.tolist())
colour, _ = render(field, Tensor.zeros(RAYS, 3), Tensor(normal(RAYS, 3, seed=60)))
log("colour", colour.numpy(), rtol=1e-3)  # five steps of Adam
