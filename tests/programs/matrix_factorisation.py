"""Recommendations: users times items with biases, only observed entries count, rows gathered by index, ratings
kept in a masked table."""

import numpy as np
from common import integers, log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn

USERS, ITEMS, RANK = 8, 10, 3
observed = uniform(USERS, ITEMS, seed=1) < 0.5
ratings = (1 + integers(5, USERS, ITEMS, seed=2)).astype(np.float32)
u, i = Tensor(normal(USERS, RANK, seed=3) * 0.3), Tensor(normal(ITEMS, RANK, seed=4) * 0.3)
bias_u, bias_i, mean = Tensor.zeros(USERS), Tensor.zeros(ITEMS), float(ratings[observed].mean())
opt = nn.optim.Adam([u, i, bias_u, bias_i], lr=0.1)
rows, columns = (Tensor(index.astype(np.int32)) for index in np.nonzero(observed))
known = Tensor(ratings[observed])
with Context(TRAINING=1):
    for epoch in range(7):
        predicted = (u[rows] * i[columns]).sum(axis=1) + bias_u[rows] + bias_i[columns] + mean
        log("error", (predicted - known).square().mean().sqrt().item())
        loss = (predicted - known).square().mean() + 0.02 * (u.square().sum() + i.square().sum())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())
table = u @ i.T + bias_u.unsqueeze(1) + bias_i + mean
mask = Tensor(observed)
log("dense", mask.where((table - Tensor(ratings)).square(), 0).sum().item())
log("recommended", mask.where(-1e9, table).argmax(axis=1).tolist())
log("users", u.numpy(), rtol=1e-3)  # seven steps of Adam
