import torch
from common import initial, log, normal

log("dtype", "half")
net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
net.half()
masters = [p.detach().float().requires_grad_() for p in net.parameters()]
opt = torch.optim.Adam(masters, lr=0.02)
x, y = torch.tensor(normal(12, 5, seed=1)).half(), torch.tensor(normal(12, 1, seed=2)).half()
for step in range(6):
    net.zero_grad()
    loss = (net(x) - y).float().square().mean()
    loss.backward()
    with torch.no_grad():
        for m, p in zip(masters, net.parameters()):
            m.grad = p.grad.float()
        opt.step()
        for m, p in zip(masters, net.parameters()):
            p.copy_(m)
            m.copy_(p)  # the weights themselves are halves
    log("loss", loss.item())
log("sum", 3000.0)
log("weight", net[0].weight.tolist())
