import math

import torch
from common import log, normal

x, y = torch.tensor(normal(10, 4, seed=1)), torch.tensor(normal(10, 2, seed=2))
for style in ("by hand", "scheduler"):
    w = torch.tensor(normal(4, 2, seed=3), requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=8)
    # PyTorch keeps the momentum free of the rate, as the program's optimizer does.
    for i in range(8):
        if style == "by hand":
            opt.param_groups[0]["lr"] = 0.3 * (i + 1) / 3 if i < 3 else 0.15 * (1 + math.cos(math.pi * (i - 3) / 5))
        opt.zero_grad()
        loss = (x @ w - y).square().mean()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        if style == "scheduler":
            schedule.step()
        log("rate", opt.param_groups[0]["lr"])
    log("w", w.tolist())
