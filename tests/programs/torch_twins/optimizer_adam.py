import torch
from common import initial, log, normal

x, y = torch.tensor(normal(9, 6, seed=1)), torch.tensor(normal(9, 2, seed=2))


def run(make):
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.SiLU(), torch.nn.Linear(8, 2))
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    opt = make(net.parameters())
    for _ in range(5):
        opt.zero_grad()
        loss = (net(x) - y).abs().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
    log("w", net[0].weight.tolist())
    log("norm", net[1].weight.tolist())


for jitted in (False, True):
    run(lambda p: torch.optim.Adam(p, lr=0.02))
    run(lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.2, betas=(0.8, 0.95)))
    run(lambda p: torch.optim.AdamW(p, lr=0.02))
