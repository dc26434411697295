import torch
from common import initial, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.l2(self.l1(x).tanh())


x, y = torch.tensor(normal(8, 4, seed=1)), torch.tensor(normal(8, 2, seed=2))
net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt, losses = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
for i in range(5):
    opt.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if i == 2:
        energy = net(x).square().sum().item()
for loss in losses:
    log("loss", loss)
log("epoch", "3 net")
for loss in losses[3:]:
    log("loss", loss)
log("copy", energy)
log("lazy", (torch.tensor(normal(3, seed=5)) * 2 + 1).tolist())
log("types", [[1, 2], [1.5, -2.0], [1, 0]])
