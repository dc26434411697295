import torch
from common import log, normal

X, true = normal(30, 3, seed=1), normal(3, seed=2)
x, y = torch.tensor(X), torch.tensor(X @ true + 0.1 * normal(30, seed=3) + 0.5)
design = torch.cat([x, torch.ones(30, 1)], 1)
log("normal equations", torch.linalg.solve(design.T @ design, design.T @ y).tolist())
for name in ("by hand", "layer"):
    w, b = torch.zeros(3, requires_grad=True), torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD([w, b], lr=0.2)
    for step in range(8):
        opt.zero_grad()
        loss = (x @ w + b - y).square().mean()
        loss.backward()
        opt.step()
        log(name, loss.item())
    log("w" if name == "by hand" else name, w.tolist() + b.tolist())
residual = y - (x @ w + b)
log("r squared", (1 - residual.square().sum() / (y - y.mean()).square().sum()).item())
