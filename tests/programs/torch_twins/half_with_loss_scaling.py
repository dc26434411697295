import torch
from common import initial, log, normal

net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
masters = [p.detach().clone().requires_grad_() for p in net.parameters()]
net.half()
params = list(net.parameters())
opt = torch.optim.Adam(masters, lr=0.02)
x, y = torch.tensor(normal(16, 6, seed=1)).half(), torch.tensor(normal(16, 2, seed=2))
scale = 2.0**20
for step in range(10):
    net.zero_grad()
    loss = (net(x).float() - y).square().mean()
    (loss * scale).backward()
    gradients = [p.grad.float() / scale for p in params]
    finite = all(bool(g.isfinite().all()) for g in gradients)
    log("step", [finite, scale])
    if not finite:
        scale /= 4
        continue
    for m, g in zip(masters, gradients):
        m.grad = g
    opt.step()
    with torch.no_grad():
        for p, m in zip(params, masters):
            p.copy_(m)
    log("loss", loss.item())
log("dtype", "half")
log("masters", masters[0].tolist())
