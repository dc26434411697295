"""Tables filled by assignment to slices, rows and columns, strided and by index; a game of life, a dynamic
programme, a sliding window."""

import numpy as np
from common import integers, log, normal
from tinygrad_cpp import Tensor

board = Tensor((integers(3, 8, 8, seed=1) == 0).astype(np.int32)).contiguous().realize()
for generation in range(4):
    neighbours = sum(
        (board.roll(i, 0).roll(j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j),
        Tensor.zeros(8, 8, dtype="int32"),
    )
    board = ((neighbours == 3) | ((board == 1) & (neighbours == 2))).int().realize()
    log("alive", int(board.sum().item()))
log("board", board.tolist())

table = Tensor.zeros(6, 7).contiguous().realize()
table[0] = Tensor.arange(7).float()
table[:, 0] = Tensor.arange(6).float()
a, b = "kitten"[:5], "sitting"[:6]
for i in range(1, 6):
    for j in range(1, 7):
        cost = 0 if a[i - 1] == b[j - 1] else 1
        table[i, j] = Tensor.stack(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost).min()
log("edit distance", table.tolist())

window = Tensor.zeros(5).contiguous().realize()
for value in normal(8, seed=2).tolist():
    window[:-1] = window[1:].clone()
    window[-1] = value
    log("mean of window", window.mean().item())

x = Tensor.zeros(4, 6).contiguous().realize()
x[1:3, ::2] = Tensor(normal(2, 3, seed=3))
x[0, 1:4] += 2
x[:, -1] *= 0
x[3] = -1
x[2:, 4:] = x[:2, :2] + 10
log("x", x.numpy())
rows = Tensor([2, 0])
x[rows] = Tensor(normal(2, 6, seed=4))
log("rows", x.numpy())
y = x.clone()
y[x < 0] = 0
log("clipped", y.numpy())
log("unchanged", x.numpy())
