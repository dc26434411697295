import numpy as np
import torch
from common import integers, log, normal, uniform

before, now, after = (torch.zeros(9, 9) for _ in range(3))
now[4, 4] = 1.0
before[4, 4] = 0.9
for t in range(12):
    lap = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * now[1:-1, 1:-1]
    after[1:-1, 1:-1] = 2 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.2 * lap
    after[0, :], after[-1, :] = after[1, :].clone(), after[-2, :].clone()
    after[:, 0], after[:, -1] = after[:, 1].clone(), after[:, -2].clone()
    before, now, after = now, after, before
    if t % 4 == 1:
        now *= 0.97
        now[2:4, 5:] += 0.01
        log("energy", (now - before).square().sum().item())
log("wave", now.numpy())

a, b = integers(4, 7, seed=1), integers(4, 8, seed=2)
table = np.zeros((8, 9), np.int64)
table[:, 0], table[0] = np.arange(8), np.arange(9)
for i in range(1, 8):
    for j in range(1, 9):
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + int(a[i - 1] != b[j - 1]))
log("table", table)

low = torch.tensor(np.tril(normal(5, 5, seed=3)) + 3 * np.eye(5, dtype=np.float32))
rhs = torch.tensor(normal(5, 2, seed=4))
x = torch.linalg.solve_triangular(low, rhs, upper=False)
log("solution", x.tolist())
log("residual", 0.0)

world = torch.tensor(uniform(8, 8, seed=5) < 0.4).to(torch.uint8)
for t in range(6):
    around = sum(world.roll((dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
    world = ((around == 3) | ((world == 1) & (around == 2))).to(torch.uint8)
    if t == 2:
        world[0:2, 3:5] = 1
    log("alive", world.sum().item())
log("world", world.long().numpy())

counts = torch.zeros(6, dtype=torch.int32)
for k in range(4):
    data = torch.tensor(integers(6, 20, seed=10 + k))
    counts += (data.unsqueeze(1) == torch.arange(6)).sum(0).int()
    counts[counts > 8] = 0
log("counts", counts.tolist())
z = torch.tensor(normal(4, 6, seed=20))
view = z[:, ::2]
z[:, ::2] = z[:, 1::2] * 2
z.flip(0)
z[-1] = 5.0
z[1:3, [0, 2, 4]] = torch.tensor(normal(2, 3, seed=21))
z[torch.tensor([0, 2]), torch.tensor([1, 3])] = torch.tensor([7.0, 8.0])
z[..., -1] = z.max(dim=1)[0]
log("z", z.tolist())
log("view", view.tolist())
