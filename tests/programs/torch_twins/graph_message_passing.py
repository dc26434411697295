import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

NODES, EDGES = 12, 30
source, target = integers(NODES, EDGES, seed=1), integers(NODES, EDGES, seed=2)
source, target = (torch.tensor(np.concatenate([e, np.arange(NODES, dtype=np.int32)])).long() for e in (source, target))


class GraphLayer(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.message, self.own = torch.nn.Linear(n_in, n_out), torch.nn.Linear(n_in, n_out, bias=False)

    def forward(self, x):
        messages = self.message(x)[source]
        total = torch.zeros(NODES, messages.shape[1]).index_add(0, target, messages)
        return self.own(x) + total / torch.bincount(target, minlength=NODES).unsqueeze(1)


net = torch.nn.Sequential(GraphLayer(5, 8), GraphLayer(8, 3))
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.03)
x, y = torch.tensor(normal(NODES, 5, seed=3)), torch.tensor(integers(3, NODES, seed=4)).long()
for epoch in range(6):
    opt.zero_grad()
    hidden = net[0](x).relu()
    out = net[1](hidden)
    log("hidden", hidden.sum(0).tolist())
    loss = F.cross_entropy(out, y)
    loss.backward()
    opt.step()
    log("loss", loss.item())
log("classes", out.argmax(1).tolist())
log("weight", net[0].message.weight.tolist())
