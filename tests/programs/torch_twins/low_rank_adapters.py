import torch
import torch.nn.functional as F
from common import initial, log, normal

names = {"l1.weight": (10, 6), "l1.bias": (10,), "l2.weight": (3, 10), "l2.bias": (3,)}
base = {k: torch.tensor(v) for k, v in initial({k: torch.zeros(s) for k, s in names.items()}).items()}
x, y = torch.tensor(normal(14, 6, seed=1)), torch.tensor(normal(14, 3, seed=2))
a = [torch.tensor(normal(2, 6, seed=3), requires_grad=True), torch.tensor(normal(2, 10, seed=4), requires_grad=True)]
b = [torch.zeros(10, 2, requires_grad=True), torch.zeros(3, 2, requires_grad=True)]


def net():
    w1, w2 = (base[f"l{i + 1}.weight"] + b[i] @ a[i] * 0.5 for i in range(2))
    return F.linear(F.gelu(F.linear(x, w1, base["l1.bias"]), approximate="tanh"), w2, base["l2.bias"])


log("base", (net() - y).square().mean().item())
opt = torch.optim.AdamW([a[0], b[0], a[1], b[1]], lr=0.05, weight_decay=0.0)
for _ in range(7):
    opt.zero_grad()
    loss = (net() - y).square().mean()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("norm of b", b[0].norm().item())
log("frozen", True)
log("merged", 0.0)
log("saved", (base["l2.weight"] + b[1] @ a[1] * 0.5).tolist())
log("names", "l1.a,l1.b,l1.layer.bias,l1.layer.weight,l2.a,l2.b,l2.layer.bias,l2.layer.weight")
log("count", 8)
