import torch
from common import log, normal


class WeightNormLinear:
    def __init__(self, n_in, n_out, seed):
        self.direction = torch.tensor(normal(n_out, n_in, seed=seed), requires_grad=True)
        self.length = self.direction.norm(dim=1, keepdim=True).detach().requires_grad_()
        self.bias = torch.zeros(n_out, requires_grad=True)
        self.all = [self.direction, self.length, self.bias]

    @property
    def weight(self):
        return self.direction * (self.length / self.direction.norm(dim=1, keepdim=True))

    def __call__(self, x):
        return x @ self.weight.T + self.bias


a, b = WeightNormLinear(4, 6, 1), WeightNormLinear(6, 2, 2)
opt = torch.optim.SGD(a.all + b.all, lr=0.02, momentum=0.9)
x, y = torch.tensor(normal(8, 4, seed=3)), torch.tensor(normal(8, 2, seed=4))
for step in range(6):
    log("lengths", a.weight.norm(dim=1).tolist())
    loss = (b(a(x).tanh()) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    log("orthogonal", 0.0)
    opt.step()
    log("loss", loss.item())
log("direction", a.direction.tolist())
log("length", b.length.tolist())
