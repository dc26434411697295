import torch
from common import log, normal

w = torch.tensor(normal(4, 4, seed=1), requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
x = torch.tensor(normal(6, 4, seed=2))
losses, gradients, predictions = [], [], []
for _ in range(5):
    opt.zero_grad()
    out = (x @ w).tanh()
    loss = (out - 0.3).square().sum()
    loss.backward()
    losses.append(loss)
    gradients.append(w.grad)
    predictions.append(out.mean())
    opt.step()
log("losses", [loss.item() for loss in losses])
log("predictions", [p.item() for p in predictions])
log("first gradient", gradients[0].tolist())
log("last gradient", gradients[-1].tolist())
log("w", w.tolist())
