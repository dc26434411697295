import torch
import torch.nn.functional as F
from common import initial, log, normal

TIME, CLASSES = 8, 4
labels = torch.tensor([[1, 2, 2], [3, 1, 2]])
net = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.Tanh(), torch.nn.Linear(12, CLASSES))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.05)
x = torch.tensor(normal(2, TIME, 5, seed=1))
for step in range(5):
    log_p = net(x).log_softmax(-1).transpose(0, 1)
    losses = F.ctc_loss(log_p, labels, [TIME, TIME], [3, 3], reduction="none")
    log("losses", losses.tolist())
    opt.zero_grad()
    losses.sum().backward()
    opt.step()
    log("gradient", net[2].weight.grad.norm().item())
path = net(x).argmax(2).tolist()
log("decoded", [[c for t, c in enumerate(row) if c and (t == 0 or row[t - 1] != c)] for row in path][0])
