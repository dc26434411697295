"""A convolutional autoencoder with transposed convolutions, a denoising loss, the latent code printed while it
trains."""

from common import initial, log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class AutoEncoder:
    def __init__(self):
        self.c1, self.c2 = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.t1, self.t2 = nn.ConvTranspose2d(6, 4, 2, stride=2), nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1)

    def encode(self, x):
        return self.c2(self.c1(x).relu()).tanh()

    def __call__(self, x):
        self.code = self.encode(x)
        return self.t2(self.t1(self.code).relu()).sigmoid()


net = AutoEncoder()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.01)
clean = Tensor(uniform(5, 1, 8, 8, seed=1)).realize()
with Context(TRAINING=1):
    for step in range(5):
        out = net(clean + 0.1 * Tensor(normal(5, 1, 8, 8, seed=2 + step)))
        log("code", net.code.mean(axis=(0, 2, 3)).tolist())
        loss = (out - clean).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("gradients", [p.grad.abs().sum().item() for p in (net.c1.weight, net.t1.weight, net.t2.bias)])
log("reconstruction", net(clean)[0, 0].numpy(), atol=1e-5)
