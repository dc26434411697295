"""Recurrences without a matrix product, unrolled and differentiated: leaky neurons, an elementwise ODE, spiking
neurons with a surrogate gradient."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

decay, gain, bias = Tensor(normal(6, seed=1)), Tensor(normal(6, seed=2)), Tensor(normal(6, seed=3) * 0.1)
opt = nn.optim.Adam([decay, gain, bias], lr=0.05)
drive, target = normal(12, 6, seed=4), Tensor(normal(6, seed=5))
with Context(TRAINING=1):
    for step in range(4):
        h = Tensor.zeros(6)
        for t in range(12):
            h = (h * decay.sigmoid() + gain * Tensor(drive[t]) + bias).tanh()
        log("neurons", h.tolist())
        loss = (h - target).square().mean()
        opt.zero_grad()
        loss.backward()
        log("gradient", decay.grad.tolist())
        opt.step()
        log("loss", loss.item())

rate = Tensor(normal(5, seed=6))
y = Tensor(normal(5, seed=7))
for t in range(14):
    y = y + 0.1 * (rate * y).elu() - 0.05 * y
y.square().sum().backward()
log("ode", y.tolist())
log("gradient of the rate", rate.grad.tolist())

weight = Tensor(normal(5, seed=8))
potential, spikes = Tensor.zeros(5), Tensor.zeros(5)
for t in range(10):
    potential = potential * 0.8 * (1 - spikes) + weight * Tensor(drive[t][:5]).abs()
    soft = (4 * (potential - 0.5)).sigmoid()
    spikes = soft + ((potential > 0.5).float() - soft).detach()
spikes.sum().backward()
log("spikes", spikes.tolist())
log("surrogate gradient", weight.grad.tolist())
