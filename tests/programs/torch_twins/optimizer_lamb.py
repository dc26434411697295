import torch
from common import initial, log, normal

x, y = torch.tensor(normal(4, 2, 6, 6, seed=1)), torch.tensor(normal(4, 3, seed=2))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(2, 4, 3), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.fc(torch.nn.functional.max_pool2d(self.conv(x).relu(), 2).flatten(1))


def run(lr=0.05, b1=0.9, b2=0.999, eps=1e-6, decay=0.01):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    params = list(net.parameters())
    m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    for t in range(1, 6):
        net.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for i, p in enumerate(params):
                m[i], v[i] = b1 * m[i] + (1 - b1) * p.grad, b2 * v[i] + (1 - b2) * p.grad**2
                update = m[i] / (1 - b1**t) / ((v[i] / (1 - b2**t)).sqrt() + eps) + decay * p
                p -= lr * p.norm() / update.norm() * update
        log("loss", loss.item())
    log("conv", net.conv.weight.tolist())
    log("fc", net.fc.weight.tolist())


run()
run()
