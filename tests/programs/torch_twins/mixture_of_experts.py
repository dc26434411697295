import torch
import torch.nn.functional as F
from common import initial, log, normal

EXPERTS, DIM = 4, 6


class Mixture(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(DIM, EXPERTS, bias=False)
        self.up, self.down = (torch.nn.Parameter(torch.zeros(EXPERTS, *s)) for s in ((DIM, 8), (8, DIM)))

    def forward(self, x):
        probabilities = self.gate(x).softmax(-1)
        weight, chosen = probabilities.topk(2)
        weight = weight / weight.sum(1, keepdim=True)
        hidden = F.silu(x.unsqueeze(1).unsqueeze(1) @ self.up[chosen])
        out = ((hidden @ self.down[chosen]).squeeze(2) * weight.unsqueeze(2)).sum(1)
        load = F.one_hot(chosen, EXPERTS).float().sum((0, 1)) / (2 * x.shape[0])
        return out, EXPERTS * (load * probabilities.mean(0)).sum(), load


layer = Mixture()
layer.load_state_dict({k: torch.tensor(v) for k, v in initial(layer.state_dict()).items()})
opt = torch.optim.Adam(layer.parameters(), lr=0.02)
x, y = torch.tensor(normal(10, DIM, seed=1)), torch.tensor(normal(10, DIM, seed=2))
for step in range(5):
    out, balance, load = layer(x)
    log("load", load.tolist())
    loss = (x + out - y).square().mean() + 0.1 * balance
    log("loss", loss.item())
    opt.zero_grad()
    loss.backward()
    log("gate", layer.gate.weight.grad.norm().item())
    opt.step()
log("up", layer.up.square().sum((1, 2)).tolist())
