import torch
from common import initial, log, normal

x, y = torch.tensor(normal(12, 4, seed=1)), torch.tensor(normal(12, 1, seed=2)) * 5
for style in ("eager", "jitted"):
    net = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        log("norm", norm.item())
        log("loss", loss.item())
    log("weight", net[0].weight.tolist())
