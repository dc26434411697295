import torch
from common import initial, log, normal

net = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters(), "lr": 0.05}])
for i in range(7):
    opt.zero_grad()
    loss = (net(torch.tensor(normal(6, 4, seed=i))) - torch.tensor(normal(6, 2, seed=20 + i))).square().mean() * 0.9
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("norm", net[0].weight.square().sum().item())
log("weight", net[2].weight.tolist())
