import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.l2(self.l1(x).relu())


net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
X, Y = torch.tensor(normal(6, 12, 8, seed=1)), torch.tensor(integers(4, 6, 12, seed=2)).long()
for x, y in zip(X, Y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("gradient", net.l2.bias.grad.tolist())
log("prediction", net(X[0]).argmax(1).tolist())
log("weight", net.l1.weight.tolist())
