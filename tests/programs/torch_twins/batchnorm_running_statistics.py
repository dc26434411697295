import torch
import torch.nn.functional as F
from common import initial, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn1 = torch.nn.Conv2d(2, 4, 3, bias=False), torch.nn.BatchNorm2d(4)
        self.fc, self.bn2 = torch.nn.Linear(16, 5), torch.nn.BatchNorm1d(5, momentum=0.3)

    def forward(self, x):
        return self.bn2(self.fc(F.max_pool2d(self.bn1(self.conv(x)).relu(), 2).flatten(1)))


x, y, held_out = (
    torch.tensor(normal(6, 8, 2, 6, 6, seed=1) * 2 + 1),
    torch.tensor(normal(6, 8, 5, seed=2)),
    torch.tensor(normal(4, 2, 6, 6, seed=3)),
)
for jitted in (False, True):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(6):
        net.train()
        opt.zero_grad()
        loss = (net(x[epoch]) - y[epoch]).square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("running", [net.bn1.running_mean.tolist(), net.bn1.running_var.tolist()])
        net.eval()
        log("validation", net(held_out).square().mean().item())
    log("steps", int(net.bn1.num_batches_tracked.item()))
    log("second", [net.bn2.running_mean.tolist(), net.bn2.running_var.tolist()])
