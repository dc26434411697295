import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

x, y = torch.tensor(normal(16, 8, seed=1)).bfloat16(), torch.tensor(integers(4, 16, seed=2)).long()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.norm, self.l2 = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.l2(self.norm(self.l1(x)).relu())


for style in ("straight", "masters"):
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    masters = [p.detach().clone().requires_grad_() for p in net.parameters()]
    net.bfloat16()
    opt = torch.optim.AdamW(masters, lr=0.05)  # its state is float32; "straight" rounds the weights after each step
    for step in range(6):
        net.zero_grad()
        loss = F.cross_entropy(net(x).float(), y)
        loss.backward()
        for m, p in zip(masters, net.parameters()):
            m.grad = p.grad.float()
        opt.step()
        with torch.no_grad():
            for m, p in zip(masters, net.parameters()):
                p.copy_(m)
                if style == "straight":
                    m.copy_(p)
        log("loss", loss.item())
    log("dtypes", ["bfloat16"] * 6)
    log("accuracy", (net(x).argmax(1) == y).float().mean().item())
