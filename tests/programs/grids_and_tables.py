"""Programs made of writes into slices: a wave equation on a grid (inner part updated in place, three buffers swapped),
an edit distance table, a triangular solve row by row, the game of life with rolls, a running histogram with repeated
indices."""

import numpy as np
from common import integers, log, normal, uniform
from tinygrad_cpp import Tensor, dtypes

# waves
before, now, after = (Tensor.zeros(9, 9).contiguous().realize() for _ in range(3))
now[4, 4] = 1.0
before[4, 4] = 0.9
for t in range(12):
    lap = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * now[1:-1, 1:-1]
    after[1:-1, 1:-1] = 2 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.2 * lap
    after[0, :], after[-1, :] = after[1, :], after[-2, :]
    after[:, 0] = after[:, 1].clone()
    after[:, -1] = after[:, -2].clone()
    before, now, after = now, after, before
    if t % 4 == 1:
        now *= 0.97
        now[2:4, 5:] += 0.01
        log("energy", (now - before).square().sum().item())
log("wave", now.numpy())

# edit distance
a, b = integers(4, 7, seed=1), integers(4, 8, seed=2)
table = Tensor.zeros(8, 9, dtype=dtypes.int32).contiguous()
table[:, 0] = Tensor.arange(8)
table[0] = Tensor.arange(9)
for i in range(1, 8):
    for j in range(1, 9):
        cost = int(a[i - 1] != b[j - 1])
        table[i, j] = Tensor.stack(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost).min()
log("table", table.numpy())

# triangular solve
low = Tensor(np.tril(normal(5, 5, seed=3)) + 3 * np.eye(5, dtype=np.float32))
rhs = Tensor(normal(5, 2, seed=4))
x = rhs.clone()
for i in range(5):
    if i:
        x[i] -= (low[i, :i].unsqueeze(1) * x[:i]).sum(0)
    x[i] /= low[i, i]
log("solution", x.numpy())
log("residual", (low @ x - rhs).abs().max().item())

# life
world = Tensor(uniform(8, 8, seed=5) < 0.4).cast(dtypes.uint8)
for t in range(6):
    around = sum(world.roll((dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
    world = ((around == 3) | ((world == 1) & (around == 2))).cast(dtypes.uint8)
    if t == 2:
        world[0:2, 3:5] = 1
    log("alive", world.sum().item())
log("world", world.numpy().astype(np.int64))

# histogram, masks, strided and reversed writes
counts = Tensor.zeros(6, dtype=dtypes.int32).contiguous()
for k in range(4):
    data = Tensor(integers(6, 20, seed=10 + k))
    counts += (data.unsqueeze(1) == Tensor.arange(6)).sum(0).cast(dtypes.int32)
    counts[counts > 8] = 0
log("counts", counts.tolist())
z = Tensor(normal(4, 6, seed=20)).realize()
view = z[:, ::2]
z[:, ::2] = z[:, 1::2] * 2
z[::-1][0] = 5.0
z[1:3, [0, 2, 4]] = Tensor(normal(2, 3, seed=21))
z[Tensor([0, 2]), Tensor([1, 3])] = Tensor([7.0, 8.0])
z[..., -1] = z.max(axis=1)
log("z", z.numpy())
log("view", view.numpy())
