import torch
import torch.nn.functional as F
from common import initial, log, normal, uniform


class VAE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        L = torch.nn.Linear
        self.enc, self.mean, self.logvar, self.dec, self.out = L(12, 10), L(10, 3), L(10, 3), L(3, 10), L(10, 12)

    def decode(self, z):
        return self.out(self.dec(z).relu()).sigmoid()

    def forward(self, x, noise):
        h = self.enc(x).relu()
        mean, logvar = self.mean(h), self.logvar(h)
        return self.decode(mean + noise * (logvar * 0.5).exp()), mean, logvar


vae = VAE()
vae.load_state_dict({k: torch.tensor(v) for k, v in initial(vae.state_dict()).items()})
opt = torch.optim.Adam(vae.parameters(), lr=0.01)
x, noise = torch.tensor(uniform(16, 12, seed=1)), torch.tensor(normal(6, 16, 3, seed=2))
for step in range(6):
    opt.zero_grad()
    out, mean, logvar = vae(x, noise[step])
    reconstruction = F.binary_cross_entropy(out, x) * 12
    divergence = (-0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1)).mean()
    log("terms", [reconstruction.item(), divergence.item()])
    (reconstruction + divergence).backward()
    opt.step()
    log("gradient", vae.logvar.weight.grad.norm().item())
log("samples", vae.decode(torch.tensor(normal(4, 3, seed=9))).tolist())
