import torch
import torch.nn.functional as F
from common import log, normal

X = normal(40, 2, seed=1)
x = torch.cat([torch.tensor(X), torch.ones(40, 1)], 1)
y = torch.tensor((X[:, 0] - 0.5 * X[:, 1] + 0.7 * normal(40, seed=2) > 0).astype("float32"))
w = torch.zeros(3)
for step in range(5):
    p = (x @ w).sigmoid()
    log("loss", F.binary_cross_entropy(p, y).item())
    w = w - torch.linalg.solve(x.T @ (x * (p * (1 - p)).unsqueeze(1)) + torch.eye(3), x.T @ (p - y) + w)
log("w", w.tolist())
guess, truth = (x @ w) > 0, y > 0.5
log(
    "confusion",
    [
        [int((guess & truth).sum()), int((guess & ~truth).sum())],
        [int((~guess & truth).sum()), int((~(guess | truth)).sum())],
    ],
)
v = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([v], lr=0.05)
for step in range(6):
    opt.zero_grad()
    loss = F.binary_cross_entropy_with_logits(x @ v, y) * 40 + 0.5 * v.square().sum()
    log("by gradients", loss.item())
    loss.backward()
    opt.step()
log("v", v.tolist())
