"""Weight normalisation by hand: directions and lengths are the parameters, the weight is computed in each forward
pass and looked at."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn


class WeightNormLinear:
    def __init__(self, n_in, n_out, seed):
        self.direction = Tensor(normal(n_out, n_in, seed=seed))
        self.length = self.direction.square().sum(axis=1, keepdim=True).sqrt().detach()
        self.bias = Tensor.zeros(n_out)

    @property
    def weight(self):
        return self.direction * (self.length / self.direction.square().sum(axis=1, keepdim=True).sqrt())

    def __call__(self, x):
        return x.linear(self.weight.T, self.bias)


a, b = WeightNormLinear(4, 6, 1), WeightNormLinear(6, 2, 2)
opt = nn.optim.SGD([a.direction, a.length, a.bias, b.direction, b.length, b.bias], lr=0.02, momentum=0.9)
x, y = Tensor(normal(8, 4, seed=3)), Tensor(normal(8, 2, seed=4))
with Context(TRAINING=1):
    for step in range(6):
        log("lengths", a.weight.square().sum(axis=1).sqrt().tolist())
        loss = (b(a(x).tanh()) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        log("orthogonal", (a.direction.grad * a.direction).sum(axis=1).abs().max().item(), atol=1e-5)
        opt.step()
        log("loss", loss.item())
log("direction", a.direction.numpy())
log("length", b.length.numpy())
