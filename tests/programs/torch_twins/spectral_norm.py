import torch
from common import log, normal


class SpectralLinear:
    def __init__(self, n_in, n_out, seed):
        self.weight, self.bias = torch.tensor(normal(n_out, n_in, seed=seed), requires_grad=True), torch.zeros(
            n_out, requires_grad=True
        )
        self.u = torch.tensor(normal(n_out, seed=seed + 1))

    def __call__(self, x):
        with torch.no_grad():
            v = torch.nn.functional.normalize(self.weight.T @ self.u, dim=0)
            self.u = torch.nn.functional.normalize(self.weight @ v, dim=0)
        return x @ (self.weight / (self.u * (self.weight @ v)).sum()).T + self.bias


x, y = torch.tensor(normal(9, 5, seed=1)), torch.tensor(normal(9, 2, seed=2))
for jitted in (False, True):
    a, b = SpectralLinear(5, 7, 10), SpectralLinear(7, 2, 20)
    opt = torch.optim.SGD([a.weight, a.bias, b.weight, b.bias], lr=0.3)
    for i in range(6):
        opt.zero_grad()
        loss = (b(a(x).relu()) - y).square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("u", a.u.tolist())
    log("weight", a.weight.tolist())
