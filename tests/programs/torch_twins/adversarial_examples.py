import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
x, y = torch.tensor(normal(10, 6, seed=1), requires_grad=True), torch.tensor(integers(3, 10, seed=2)).long()
loss = F.cross_entropy(net(x), y)
log("loss", loss.item())
loss.backward()
fast = x.detach() + 0.1 * x.grad.sign()
log("fast gradient sign", [F.cross_entropy(net(fast), y).item(), (fast - x).abs().max().item()])
attack = x.detach().clone()
for step in range(5):
    attack.requires_grad_()
    (g,) = torch.autograd.grad(F.cross_entropy(net(attack), y), attack)
    attack = torch.minimum(torch.maximum(attack + 0.05 * g.sign(), x - 0.15), x + 0.15).detach()
    log("attacked", F.cross_entropy(net(attack), y).item())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    x.grad = None
    F.cross_entropy(net(x), y).backward()
    bad = (x + 0.1 * x.grad.sign()).detach()
    opt.zero_grad()
    loss = F.cross_entropy(net(bad), y)
    loss.backward()
    opt.step()
    log("adversarial loss", loss.item())
log("weight", net[0].weight.tolist())
