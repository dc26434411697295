import copy

import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, uniform
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1, self.c2, self.b2, self.out = nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Conv2d(6,
                8, 3, bias=False), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(self.b1(self.c1(x)).relu(), 2)
        return self.out(self.b2(self.c2(x)).relu().mean((2, 3)))


images = torch.tensor(integers(256, 40, 3, 10, 10, seed=1).astype(np.uint8))
labels = torch.tensor(integers(4, 40, seed=2)).long()


def augment(batch, seed):
    draws = uniform(4, batch.shape[0], seed=seed)
    out = []
    for image, f, r, c, b in zip(batch, *draws):
        if f < 0.5:
            image = image.flip(2)
        r, c = int(r * 3), int(c * 3)
        image = F.pad(image, (1, 1, 1, 1))[:, r : r + 10, c : c + 10]
        out.append((image.float() * torch.tensor(np.float32(0.8) + np.float32(0.4) * b)).clip(0, 255).to(torch.uint8))
    return (torch.stack(out).float() / 255.0 - 0.45) / 0.25


def train(net, opt, steps):
    for i in steps:
        rows = torch.tensor(integers(40, 12, seed=100 + i)).long()
        x, y = augment(images[rows], 200 + i), labels[rows]
        net.train()
        if i == 2:
            net(x)
            log("abandoned", True)
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        opt.step()
        log("loss", loss.item())
        net.eval()
        log("evaluated", (net((images[:6].float() / 255 - 0.45) / 0.25).argmax(1) == labels[:6]).float().mean().item())


net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.01)
log("augmented", augment(images[:4], 5).tolist())
train(net, opt, range(4))
saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
for _ in range(2):
    net.load_state_dict(saved[0])
    opt.load_state_dict(copy.deepcopy(saved[1]))
    train(net, opt, range(4, 7))
    log("weight", net.c1.weight.tolist())
log("running", net.b2.running_var.tolist())
