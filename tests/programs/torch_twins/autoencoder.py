import torch
from common import initial, log, normal, uniform


class AutoEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = torch.nn.Conv2d(1, 4, 3, stride=2, padding=1), torch.nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.t1, self.t2 = torch.nn.ConvTranspose2d(6, 4, 2, stride=2), torch.nn.ConvTranspose2d(
            4, 1, 4, stride=2, padding=1
        )

    def forward(self, x):
        self.code = self.c2(self.c1(x).relu()).tanh()
        return self.t2(self.t1(self.code).relu()).sigmoid()


net = AutoEncoder()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.01)
clean = torch.tensor(uniform(5, 1, 8, 8, seed=1))
for step in range(5):
    out = net(clean + 0.1 * torch.tensor(normal(5, 1, 8, 8, seed=2 + step)))
    log("code", net.code.mean((0, 2, 3)).tolist())
    loss = (out - clean).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("gradients", [p.grad.abs().sum().item() for p in (net.c1.weight, net.t1.weight, net.t2.bias)])
log("reconstruction", net(clean)[0, 0].tolist())
