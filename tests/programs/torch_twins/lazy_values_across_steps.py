import torch
from common import initial, log, normal

net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD(net.parameters(), lr=0.2)
x, y = torch.tensor(normal(8, 3, seed=1)), torch.tensor(normal(8, 1, seed=2))
before = net[0].weight.detach().clone()


def step(x):
    opt.zero_grad()
    out = net(x)
    loss = (out - y).square().mean()
    loss.backward()
    opt.step()
    return out, loss


results = [step(x) for _ in range(4)]
log("predictions", [out.sum().item() for out, _ in results])
log("losses", [loss.item() for _, loss in results])
log("moved", (net[0].weight - before).square().sum().item())
unread = []
for i in range(6):
    unread.append(net(x).mean().item())
    log("jitted", step(torch.tensor(normal(8, 3, seed=10 + i)))[1].item())
log("unread", unread)
cache, counts = torch.zeros(4, 3), torch.zeros(3)
for i in range(4):
    cache[i] = torch.tensor(normal(3, seed=30 + i))
    counts[cache[: i + 1].sum(0).argmax()] += 1
log("counts", counts.tolist())
