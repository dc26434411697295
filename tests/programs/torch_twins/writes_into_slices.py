import numpy as np
import torch
from common import integers, log, normal

board = torch.tensor((integers(3, 8, 8, seed=1) == 0).astype(np.int32))
for generation in range(4):
    neighbours = sum(board.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    board = ((neighbours == 3) | ((board == 1) & (neighbours == 2))).int()
    log("alive", int(board.sum()))
log("board", board.tolist())
table = torch.zeros(6, 7)
table[0], table[:, 0] = torch.arange(7.0), torch.arange(6.0)
for i in range(1, 6):
    for j in range(1, 7):
        cost = 0 if "kitten"[i - 1] == "sitting"[j - 1] else 1
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost)
log("edit distance", table.tolist())
window = torch.zeros(5)
for value in normal(8, seed=2).tolist():
    window = torch.cat([window[1:], torch.tensor([value])])
    log("mean of window", window.mean().item())
x = torch.zeros(4, 6)
x[1:3, ::2] = torch.tensor(normal(2, 3, seed=3))
x[0, 1:4] += 2
x[:, -1] *= 0
x[3] = -1
x[2:, 4:] = x[:2, :2] + 10
log("x", x.tolist())
x[torch.tensor([2, 0])] = torch.tensor(normal(2, 6, seed=4))
log("rows", x.tolist())
log("clipped", x.clamp(min=0).tolist())
log("unchanged", x.tolist())
