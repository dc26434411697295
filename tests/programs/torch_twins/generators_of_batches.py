import torch
from common import initial, log, normal

net = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Sigmoid(), torch.nn.Linear(6, 1))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt, losses = torch.optim.SGD(net.parameters(), lr=0.2), []
for step in range(6):
    opt.param_groups[0]["lr"] = 0.2 * 0.8**step
    x = torch.tensor(normal(6, 3, seed=step))
    opt.zero_grad()
    loss = (net(x) - (x.sum(1, keepdim=True) * 0.5).tanh()).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    log("average", sum(losses) / len(losses))
log("rate", 0.2 * 0.8**5)
log("weight", net[0].weight.tolist())
