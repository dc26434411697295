import torch
from common import initial, log, normal

S, L = torch.nn.SiLU, torch.nn.Linear
energy = torch.nn.Sequential(L(2, 12), S(), L(12, 12), S(), L(12, 1, bias=False))
energy.load_state_dict({k: torch.tensor(v) for k, v in initial(energy.state_dict()).items()})
opt = torch.optim.Adam(energy.parameters(), lr=0.01)
data, x = torch.tensor(normal(10, 2, seed=1) * 0.4 + 1), torch.tensor(normal(10, 2, seed=2))
for step in range(4):
    for k in range(3):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        x = (x - 0.1 * slope + 0.05 * torch.tensor(normal(10, 2, seed=100 * step + k))).detach()
    log("samples", x.mean(0).tolist())
    positive, negative = energy(data), energy(x)
    loss = positive.mean() - negative.mean() + 0.1 * (positive.square() + negative.square()).mean()
    log("loss", loss.item())
    opt.zero_grad()
    loss.backward()
    opt.step()
for step in range(3):
    noise = torch.tensor(normal(10, 2, seed=50 + step)) * 0.3
    noisy = (data + noise).requires_grad_()
    (score,) = torch.autograd.grad(-energy(noisy).sum(), noisy, create_graph=True)
    loss = (score + noise / 0.09).square().sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("score matching", loss.item())
log("weight", energy[2].weight.tolist())
