"""A variational autoencoder: reparametrisation with given noise, both terms of the loss read, samples decoded at
the end."""

from common import initial, log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class VAE:
    def __init__(self):
        self.enc, self.mean, self.logvar = nn.Linear(12, 10), nn.Linear(10, 3), nn.Linear(10, 3)
        self.dec, self.out = nn.Linear(3, 10), nn.Linear(10, 12)

    def encode(self, x):
        h = self.enc(x).relu()
        return self.mean(h), self.logvar(h)

    def decode(self, z):
        return self.out(self.dec(z).relu()).sigmoid()

    def __call__(self, x, noise):
        mean, logvar = self.encode(x)
        return self.decode(mean + noise * (logvar * 0.5).exp()), mean, logvar


vae = VAE()
load_state_dict(vae, {k: Tensor(v) for k, v in initial(get_state_dict(vae)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(vae), lr=0.01)
x, noise = Tensor(uniform(16, 12, seed=1)), normal(6, 16, 3, seed=2)
with Context(TRAINING=1):
    for step in range(6):
        opt.zero_grad()
        out, mean, logvar = vae(x, Tensor(noise[step]))
        reconstruction = out.binary_crossentropy(x) * 12
        divergence = (-0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(axis=1)).mean()
        log("terms", [reconstruction.item(), divergence.item()])
        (reconstruction + divergence).backward()
        opt.step()
        log("gradient", vae.logvar.weight.grad.square().sum().sqrt().item())
log("samples", vae.decode(Tensor(normal(4, 3, seed=9))).numpy())
