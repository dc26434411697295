import torch
from common import initial, log, normal

x, y = torch.tensor(normal(16, 4, seed=1)), torch.tensor(normal(16, 2, seed=2))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.l2(torch.nn.functional.elu(self.l1(x)))


for style in ("eager", "jitted"):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    opt = torch.optim.AdamW(net.parameters(), lr=0.05)
    for _ in range(8):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
    log("weight", net.l1.weight.tolist())
