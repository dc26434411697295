import torch
from common import initial, log, normal, uniform


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(6, 20), torch.nn.Linear(20, 1)

    def forward(self, x, mask=1):
        return self.l2(self.l1(x).relu() * mask)


net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD(net.parameters(), lr=0.05)
x, y, masks = torch.tensor(normal(10, 6, seed=1)), torch.tensor(normal(10, 1, seed=2)), uniform(5, 10, 20, seed=3) < 0.5
for step in range(5):
    opt.zero_grad()
    loss = (net(x, torch.tensor(masks[step]) * 2) - y).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("evaluation", (net(x) - y).square().mean().item())
    log("evaluated twice is the same", True)
log("two values", [0.0, 1.3333])
log("mean", 1.0)
log("off", 100.0)
