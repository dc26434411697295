import torch
from common import initial, log, normal

layers = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
layers.load_state_dict({k: torch.tensor(v) for k, v in initial(layers.state_dict()).items()})
opt = torch.optim.Adam(layers.parameters(), lr=0.02)
x, y = torch.tensor(normal(20, 5, seed=1)), torch.tensor(normal(20, 1, seed=2))
for _ in range(10):
    opt.zero_grad()
    loss = (layers(x) - y).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
log("weight", layers[0].weight.tolist())
log("fit", layers(x).tolist())
