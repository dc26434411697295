"""Segmentation with a small U-net: focal loss and soft Dice, their sum trained, per-class IoU computed from values
that were read."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

CLASSES = 3


class UNet:
    def __init__(self):
        self.down, self.deep = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, CLASSES, 1)

    def __call__(self, x):
        a = self.down(x).relu()
        b = self.up(self.deep(a.max_pool2d()).relu())
        return self.out(a.cat(b, dim=1))


def focal(logits, target, gamma=2.0):
    log_p = logits.log_softmax(axis=1).gather(1, target.unsqueeze(1)).squeeze(1)
    return -((1 - log_p.exp()) ** gamma * log_p).mean()


def dice(logits, target):
    p, t = logits.softmax(axis=1), target.one_hot(CLASSES).permute(0, 3, 1, 2)
    overlap = (p * t).sum(axis=(0, 2, 3))
    return 1 - ((2 * overlap + 1) / (p.sum(axis=(0, 2, 3)) + t.sum(axis=(0, 2, 3)) + 1)).mean()


net = UNet()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.02)
image, mask = Tensor(normal(3, 2, 8, 8, seed=1)), integers(CLASSES, 3, 8, 8, seed=2)
target = Tensor(mask)
with Context(TRAINING=1):
    for step in range(5):
        logits = net(image)
        parts = [focal(logits, target), dice(logits, target)]
        log("parts", [part.item() for part in parts])
        guess = logits.argmax(axis=1).numpy()
        log(
            "iou",
            [
                float(((guess == c) & (mask == c)).sum() / max(((guess == c) | (mask == c)).sum(), 1))
                for c in range(CLASSES)
            ],
        )
        opt.zero_grad()
        (parts[0] + parts[1]).backward()
        opt.step()
log("logits", net(image)[0, :, 0].numpy(), atol=1e-4)  # five steps of Adam
