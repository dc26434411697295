import torch
from common import log, normal

x, y = torch.tensor(normal(8, 3, seed=1)), torch.tensor(normal(8, 3, seed=2) * 4)
w, b = torch.tensor(normal(3, 3, seed=3), requires_grad=True), torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1, momentum=0.5)
for i in range(6):
    opt.zero_grad()
    loss = (x @ w + b - y).square().sum()
    loss.backward()
    if i < 3:
        log("largest", max(p.grad.abs().max().item() for p in (w, b)))
        torch.nn.utils.clip_grad_value_([w, b], 0.5)
        log("clipped", w.grad.tolist())
    elif (i - 3) % 2:
        torch.nn.utils.clip_grad_value_([w, b], 0.25)
    else:
        log("norm", torch.nn.utils.clip_grad_norm_([w, b], 2.0).item())
    opt.step()
    log("loss", loss.item())
log("w", w.tolist())
