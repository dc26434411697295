import numpy as np
import torch
from common import integers, log, normal, uniform

USERS, ITEMS, RANK = 8, 10, 3
observed = uniform(USERS, ITEMS, seed=1) < 0.5
ratings = (1 + integers(5, USERS, ITEMS, seed=2)).astype(np.float32)
values = [normal(USERS, RANK, seed=3) * 0.3, normal(ITEMS, RANK, seed=4) * 0.3, np.zeros(USERS), np.zeros(ITEMS)]
u, i, bias_u, bias_i = (torch.tensor(v.astype(np.float32), requires_grad=True) for v in values)
mean = float(ratings[observed].mean())
opt = torch.optim.Adam([u, i, bias_u, bias_i], lr=0.1)
rows, columns = (torch.tensor(index) for index in np.nonzero(observed))
known = torch.tensor(ratings[observed])
for epoch in range(7):
    predicted = (u[rows] * i[columns]).sum(1) + bias_u[rows] + bias_i[columns] + mean
    log("error", (predicted - known).square().mean().sqrt().item())
    loss = (predicted - known).square().mean() + 0.02 * (u.square().sum() + i.square().sum())
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
table = u @ i.T + bias_u.unsqueeze(1) + bias_i + mean
mask = torch.tensor(observed)
log("dense", torch.where(mask, (table - torch.tensor(ratings)).square(), 0).sum().item())
log("recommended", torch.where(mask, -1e9, table).argmax(1).tolist())
log("users", u.tolist())
