"""Masked convolutions with an autoregressive sampler that writes one pixel at a time, and a cellular automaton whose
pool of grids is read and written by index tensors, with gradients normalised per tensor and a rollout of changing
length."""

import numpy as np
from common import initial, integers, log, normal, uniform
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Masked(nn.Conv2d):
    def __init__(self, a, b, size, first):
        super().__init__(a, b, size, padding=size // 2)
        mask = np.ones((1, 1, size, size), np.float32)
        mask[:, :, size // 2, size // 2 + (not first) :] = 0
        mask[:, :, size // 2 + 1 :] = 0
        self.mask = Tensor(mask).is_param_(False) if hasattr(Tensor, "is_param_") else Tensor(mask, requires_grad=False)

    def __call__(self, x):
        return x.conv2d(self.weight * self.mask, self.bias, padding=self.mask.shape[-1] // 2)


class Net:
    def __init__(self):
        self.c1, self.c2, self.out = Masked(1, 6, 5, True), Masked(6, 6, 3, False), nn.Conv2d(6, 1, 1)

    def __call__(self, x):
        h = self.c1(x).relu()
        return self.out((h + self.c2(h)).relu())


def fill(net):
    values = {k: v for k, v in initial(get_state_dict(net)).items() if "mask" not in k}
    load_state_dict(net, {k: Tensor(v) for k, v in values.items()}, strict=False, verbose=False)
    return nn.optim.Adam(get_parameters(net), lr=0.01)


net = Net()
opt = fill(net)
for i in range(5):
    x = Tensor((np.add.outer(np.arange(6), np.arange(6)) % 3
                == integers(3, 8, seed=i)[:, None, None, None]).astype(np.float32))
    with Context(TRAINING=1):
        loss = net(x).binary_crossentropy_logits(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    log("loss", loss.item())
predict = TinyJit(lambda x: net(x).sigmoid().realize())
image, draws = Tensor.zeros(2, 1, 6, 6).contiguous().realize(), uniform(6, 6, 2, seed=9)
for r in range(6):
    for c in range(6):
        p = predict(image)[:, 0, r, c]
        image[:, 0, r, c] = (Tensor(draws[r, c]) < p).float()
    log("row", image[:, 0, r].numpy())


class Automaton:
    def __init__(self):
        self.see, self.think = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, 1, bias=False)

    def __call__(self, x):
        around = x[:, :, -1:].cat(x, x[:, :, :1], dim=2)
        around = around[:, :, :, -1:].cat(around, around[:, :, :, :1], dim=3)
        return x + 0.3 * self.think(self.see(around).relu())


ca = Automaton()
opt = fill(ca)
pool = Tensor.zeros(6, 4, 5, 5).contiguous().realize()
pool[:, :, 2, 2] = 1.0
target = Tensor((np.abs(np.arange(5) - 2)[:, None] + np.abs(np.arange(5) - 2) < 2).astype(np.float32))
for i in range(6):
    places = Tensor(np.random.RandomState(i).permutation(6)[:3].astype(np.int32))
    grid = pool[places]
    with Context(TRAINING=1):
        for _ in range(3 + i % 3):
            grid = ca(grid)
        error = (grid[:, 0] - target).square().mean((1, 2))
        opt.zero_grad()
        error.mean().backward()
        for p in opt.params:
            p.grad /= p.grad.square().sum().sqrt() + 1e-8
        opt.step()
    log("error", error.numpy())
    grid = grid.detach().realize()
    worst = error.argmax().item()
    grid[worst] = 0.0
    grid[worst, :, 2, 2] = 1.0
    pool[places] = grid
log("pool", pool.numpy())
log("rule", ca.think.weight.numpy())
