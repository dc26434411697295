import torch
import torch.nn.functional as F
from common import initial, log, normal


class Generator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(4, 12), torch.nn.Linear(12, 2)

    def forward(self, z):
        return self.l2(F.leaky_relu(self.l1(z), 0.2))


class Discriminator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2 = torch.nn.Linear(2, 12), torch.nn.Linear(12, 1)

    def forward(self, x):
        return self.d2(F.leaky_relu(self.d1(x), 0.2))


G, D = Generator(), Discriminator()
for net in (G, D):
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt_g, opt_d = torch.optim.Adam(G.parameters(), lr=0.01, betas=(0.5, 0.999)), torch.optim.Adam(
    D.parameters(), lr=0.01, betas=(0.5, 0.999)
)
real, noise = torch.tensor(normal(6, 16, 2, seed=1) * 0.3 + 2), torch.tensor(normal(6, 16, 4, seed=2))
ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
for i in range(6):
    fake = G(noise[i])
    log("fake mean", fake.mean(0).tolist())
    opt_d.zero_grad()
    loss_d = F.binary_cross_entropy_with_logits(D(real[i]), ones) + F.binary_cross_entropy_with_logits(
        D(fake.detach()), zeros
    )
    loss_d.backward()
    opt_d.step()
    log("discriminator", loss_d.item())
    opt_g.zero_grad()
    loss_g = F.binary_cross_entropy_with_logits(D(fake), ones)
    log("generator", loss_g.item())
    loss_g.backward()
    log("gradient", G.l2.bias.grad.tolist())
    opt_g.step()
log("generator's weight", G.l1.weight.tolist())
log("discriminator's weight", D.d1.weight.tolist())
