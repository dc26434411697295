import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

X, Y = normal(22, 5, seed=1), integers(3, 22, seed=2)
X[np.arange(22), Y] += 2
net = torch.nn.Sequential(torch.nn.Linear(5, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.03)
X, Y = torch.tensor(X), torch.tensor(Y).long()
for epoch in range(3):
    total, right = 0.0, 0
    order = np.random.RandomState(epoch).permutation(len(X))
    for start in range(0, len(X), 8):
        rows = order[start : start + 8]
        opt.zero_grad()
        out = net(X[rows])
        loss = F.cross_entropy(out, Y[rows])
        total += loss.item() * len(rows)
        right += int((out.argmax(1) == Y[rows]).sum())
        loss.backward()
        opt.step()
    log("training", total / len(X))
    log("right", right)
    log("validation", F.cross_entropy(net(X[:7]), Y[:7]).item())
log("weight", net[0].weight.tolist())
