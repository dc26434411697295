import numpy as np
import torch
from common import initial, log

T = torch.nn.Tanh
net = torch.nn.Sequential(torch.nn.Linear(1, 10), T(), torch.nn.Linear(10, 10), T(), torch.nn.Linear(10, 1))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.02)
points = torch.tensor(np.linspace(0, 3, 12, dtype=np.float32)[:, None], requires_grad=True)
start = torch.tensor([[0.0]], requires_grad=True)


def derivative(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


for step in range(5):
    opt.zero_grad()
    u = net(points)
    residual = derivative(derivative(u, points), points) + u
    log("residual", residual.abs().max().item())
    u0 = net(start)
    loss = residual.square().mean() + u0.square().sum() + (derivative(u0, start) - 1).square().sum()
    log("loss", loss.item())
    loss.backward()
    log("gradient", net[2].weight.grad.norm().item())
    opt.step()
log("u", net(points).tolist())
