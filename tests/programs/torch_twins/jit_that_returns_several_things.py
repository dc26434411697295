import torch
from common import log, normal

w, kept = torch.tensor(normal(3, 3, seed=1)), []
for i in range(6):
    h = (torch.tensor(normal(2, 3, seed=i)) @ w).tanh()
    kept.append(h)
    log("sum", h.sum().item())
    log("parts", [h.max().item(), (h * (i + 1)).min().item()])
log("kept", [h.sum().item() for h in kept])
state = torch.ones(2, 3)
for i in range(6):
    state = state @ w * 0.5 + 0.1
log("state", state.tolist())
for i in range(5):
    log("pair", [1.0 + i + 2.0 * i, (1.0 + i) * 2.0 * i])
total = torch.zeros(3)
for i in range(6):
    total += torch.tensor(normal(3, seed=30 + i))
    log("returned", "None")
log("total", total.tolist())
