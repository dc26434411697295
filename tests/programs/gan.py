"""A GAN on a plane: two optimizers, fake samples detached for the discriminator, losses of both printed at each
step."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Generator:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(4, 12), nn.Linear(12, 2)

    def __call__(self, z):
        return self.l2(self.l1(z).leaky_relu(0.2))


class Discriminator:
    def __init__(self):
        self.d1, self.d2 = nn.Linear(2, 12), nn.Linear(12, 1)

    def __call__(self, x):
        return self.d2(self.d1(x).leaky_relu(0.2))


G, D = Generator(), Discriminator()
for net in (G, D):
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt_g, opt_d = nn.optim.Adam(get_parameters(G), lr=0.01, b1=0.5), nn.optim.Adam(get_parameters(D), lr=0.01, b1=0.5)
real, noise = normal(6, 16, 2, seed=1) * 0.3 + 2, normal(6, 16, 4, seed=2)
ones, zeros = Tensor.ones(16, 1), Tensor.zeros(16, 1)
with Context(TRAINING=1):
    for i in range(6):
        fake = G(Tensor(noise[i]))
        log("fake mean", fake.numpy().mean(axis=0))
        opt_d.zero_grad()
        loss_d = D(Tensor(real[i])).binary_crossentropy_logits(ones) + D(fake.detach()).binary_crossentropy_logits(
            zeros
        )
        loss_d.backward()
        opt_d.step()
        log("discriminator", loss_d.item())
        opt_g.zero_grad()
        loss_g = D(fake).binary_crossentropy_logits(ones)
        log("generator", loss_g.item())
        loss_g.backward()
        log("gradient", G.l2.bias.grad.tolist())
        opt_g.step()
log("generator's weight", G.l1.weight.numpy())
log("discriminator's weight", D.d1.weight.numpy())
