import torch
from common import initial, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        P = torch.nn.Parameter
        self.whiten = P(torch.zeros(4, 4))
        self.fc, self.frozen = torch.nn.Linear(4, 5), torch.nn.Linear(5, 5)
        self.scale, self.shift = P(torch.ones(5)), P(torch.zeros(5))

    def forward(self, x):
        return self.frozen(self.fc(x @ self.whiten).tanh()) * self.scale + self.shift


y = torch.tensor(normal(6, 5, seed=2))
for jitted in (False, True):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    opt = torch.optim.SGD([net.fc.weight, net.fc.bias, net.shift], lr=0.1, momentum=0.9)
    x = torch.tensor(normal(6, 4, seed=3), requires_grad=True)
    for i in range(7):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
    log("weight", net.fc.weight.tolist())
    log(
        "unchanged", [net.whiten.square().sum().item(), net.scale.sum().item(), net.frozen.weight.square().sum().item()]
    )
    if not jitted:
        log("accumulated", net.scale.grad.tolist())
        log("accumulated in the data", x.grad.tolist())
