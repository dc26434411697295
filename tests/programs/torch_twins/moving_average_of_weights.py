import copy

import torch
from common import initial, log, normal

x, y = torch.tensor(normal(10, 4, seed=1)), torch.tensor(normal(10, 2, seed=2))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.b(torch.nn.functional.leaky_relu(self.a(x), 0.1))


for style in ("eager", "jitted"):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    average = copy.deepcopy(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    for i in range(6):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for s, p in zip(average.parameters(), net.parameters()):
                s.mul_(0.8).add_(p * 0.2)
        log("loss", loss.item())
        log("loss of the average", (average(x) - y).square().mean().item())
    log("average", average.a.weight.tolist())
    log("weight", net.a.weight.tolist())
