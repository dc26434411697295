import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.norm, self.head = torch.nn.Linear(6, 10), torch.nn.LayerNorm(10), torch.nn.Linear(10, classes)

    def forward(self, x):
        return self.head(F.gelu(self.norm(self.body(x)), approximate="tanh"))


state = {k: torch.tensor(v) for k, v in initial(Net(5).state_dict()).items()}
net = Net(3)
net.load_state_dict({k: v for k, v in state.items() if not k.startswith("head")}, strict=False)
net.head.weight.data, net.head.bias.data = torch.tensor(normal(3, 10, seed=7)), torch.zeros(3)
x, y = torch.tensor(normal(15, 6, seed=8)), torch.tensor(integers(3, 15, seed=9)).long()
opt = torch.optim.Adam([*net.norm.parameters(), *net.head.parameters()], lr=0.05)
for step in range(5):
    net.zero_grad()
    loss = F.cross_entropy(net(x), y)
    log("loss", loss.item())
    loss.backward()
    log("gradient of the frozen layer", net.body.weight.grad.norm().item())
    opt.step()
log("body", net.body.weight.tolist())
log("head", net.head.weight.tolist())
slow = torch.optim.SGD(net.body.parameters(), lr=0.01)
for step in range(3):
    net.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    slow.step()
    opt.step()
    log("loss", loss.item())
log("body", net.body.weight.tolist())
log("accuracy", (net(x).argmax(1) == y).float().mean().item())
