"""WGAN-GP: the critic's loss holds the norm of its gradient at points between real and fake ones."""

from common import initial, log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Critic:
    def __init__(self):
        self.l1, self.l2, self.l3 = nn.Linear(3, 10), nn.Linear(10, 10), nn.Linear(10, 1)

    def __call__(self, x):
        return self.l3(self.l2(self.l1(x).tanh()).softplus())


critic, generator = Critic(), nn.Linear(2, 3)
for net in (critic, generator):
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt_c = nn.optim.Adam(get_parameters(critic), lr=0.01, b1=0.0, b2=0.9)
opt_g = nn.optim.Adam(get_parameters(generator), lr=0.01, b1=0.0, b2=0.9)
real, noise, mix = normal(4, 12, 3, seed=1) + 1, normal(4, 12, 2, seed=2), uniform(4, 12, 1, seed=3)
with Context(TRAINING=1):
    for i in range(4):
        fake = generator(Tensor(noise[i]))
        between = Tensor(mix[i]) * Tensor(real[i]) + (1 - Tensor(mix[i])) * fake.detach()
        (slope,) = critic(between).sum().gradient(between)
        norms = slope.square().sum(axis=1).sqrt()
        log("norms", norms.tolist())
        penalty = (norms - 1).square().mean()
        loss = critic(fake.detach()).mean() - critic(Tensor(real[i])).mean() + 10 * penalty
        log("critic", [loss.item(), penalty.item()])
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        opt_g.zero_grad()
        loss_g = -critic(fake).mean()
        loss_g.backward()
        opt_g.step()
        log("generator", loss_g.item())
log("critic's weight", critic.l2.weight.numpy())
log("generator's weight", generator.weight.numpy())
