import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, uniform


class Masked(torch.nn.Conv2d):
    def __init__(self, a, b, size, first):
        super().__init__(a, b, size, padding=size // 2)
        mask = torch.ones(1, 1, size, size)
        mask[:, :, size // 2, size // 2 + (not first) :] = 0
        mask[:, :, size // 2 + 1 :] = 0
        self.mask = mask

    def forward(self, x):
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.mask.shape[-1] // 2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.out = Masked(1, 6, 5, True), Masked(6, 6, 3, False), torch.nn.Conv2d(6, 1, 1)

    def forward(self, x):
        h = self.c1(x).relu()
        return self.out((h + self.c2(h)).relu())


def fill(net):
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
    return torch.optim.Adam(net.parameters(), lr=0.01)


net = Net()
opt = fill(net)
for i in range(5):
    x = torch.tensor((np.add.outer(np.arange(6), np.arange(6)) % 3
                      == integers(3, 8, seed=i)[:, None, None, None]).astype(np.float32))
    loss = F.binary_cross_entropy_with_logits(net(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
image, draws = torch.zeros(2, 1, 6, 6), uniform(6, 6, 2, seed=9)
with torch.no_grad():
    for r in range(6):
        for c in range(6):
            image[:, 0, r, c] = (torch.tensor(draws[r, c]) < net(image).sigmoid()[:, 0, r, c]).float()
        log("row", image[:, 0, r].tolist())


class Automaton(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.see, self.think = torch.nn.Conv2d(4, 8, 3), torch.nn.Conv2d(8, 4, 1, bias=False)

    def forward(self, x):
        return x + 0.3 * self.think(self.see(F.pad(x, (1, 1, 1, 1), mode="circular")).relu())


ca = Automaton()
opt = fill(ca)
pool = torch.zeros(6, 4, 5, 5)
pool[:, :, 2, 2] = 1.0
target = torch.tensor((np.abs(np.arange(5) - 2)[:, None] + np.abs(np.arange(5) - 2) < 2).astype(np.float32))
for i in range(6):
    places = torch.tensor(np.random.RandomState(i).permutation(6)[:3])
    grid = pool[places]
    for _ in range(3 + i % 3):
        grid = ca(grid)
    error = (grid[:, 0] - target).square().mean((1, 2))
    opt.zero_grad()
    error.mean().backward()
    for p in ca.parameters():
        p.grad /= p.grad.square().sum().sqrt() + 1e-8
    opt.step()
    log("error", error.tolist())
    grid = grid.detach()
    worst = error.argmax().item()
    grid[worst] = 0.0
    grid[worst, :, 2, 2] = 1.0
    pool[places] = grid
log("pool", pool.tolist())
log("rule", ca.think.weight.tolist())
