import torch
import torch.nn.functional as F
from common import initial, log, normal, uniform


class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = torch.nn.Linear(3, 10), torch.nn.Linear(10, 10), torch.nn.Linear(10, 1)

    def forward(self, x):
        return self.l3(F.softplus(self.l2(self.l1(x).tanh())))


critic, generator = Critic(), torch.nn.Linear(2, 3)
for net in (critic, generator):
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt_c = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.0, 0.9))
opt_g = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.0, 0.9))
real, noise, mix = (
    torch.tensor(normal(4, 12, 3, seed=1) + 1),
    torch.tensor(normal(4, 12, 2, seed=2)),
    torch.tensor(uniform(4, 12, 1, seed=3)),
)
for i in range(4):
    fake = generator(noise[i])
    between = (mix[i] * real[i] + (1 - mix[i]) * fake.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norms = slope.square().sum(1).sqrt()
    log("norms", norms.tolist())
    penalty = (norms - 1).square().mean()
    loss = critic(fake.detach()).mean() - critic(real[i]).mean() + 10 * penalty
    log("critic", [loss.item(), penalty.item()])
    opt_c.zero_grad()
    loss.backward()
    opt_c.step()
    opt_g.zero_grad()
    loss_g = -critic(fake).mean()
    loss_g.backward()
    opt_g.step()
    log("generator", loss_g.item())
log("critic's weight", critic.l2.weight.tolist())
log("generator's weight", generator.weight.tolist())
