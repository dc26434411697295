import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.bn, self.l2 = torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.l2(self.bn(self.l1(x)).relu())


X, Y = torch.tensor(normal(6, 12, 5, seed=1)), torch.tensor(integers(3, 6, 12, seed=2)).long()
for jitted in (False, True):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    for x, y in zip(X, Y):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        log("loss", loss.item())
    log("prediction", net(X[0]).argmax(1).tolist())
    log("weight", net.l1.weight.tolist())
log("devices", 2)
