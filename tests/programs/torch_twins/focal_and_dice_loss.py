import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

CLASSES = 3


class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = torch.nn.ConvTranspose2d(8, 4, 2, stride=2), torch.nn.Conv2d(8, CLASSES, 1)

    def forward(self, x):
        a = self.down(x).relu()
        return self.out(torch.cat([a, self.up(self.deep(F.max_pool2d(a, 2)).relu())], 1))


net = UNet()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.02)
image, mask = torch.tensor(normal(3, 2, 8, 8, seed=1)), torch.tensor(integers(CLASSES, 3, 8, 8, seed=2)).long()
for step in range(5):
    logits = net(image)
    log_p = logits.log_softmax(1).gather(1, mask.unsqueeze(1)).squeeze(1)
    focal = -((1 - log_p.exp()) ** 2 * log_p).mean()
    p, t = logits.softmax(1), F.one_hot(mask, CLASSES).permute(0, 3, 1, 2)
    dice = 1 - ((2 * (p * t).sum((0, 2, 3)) + 1) / (p.sum((0, 2, 3)) + t.sum((0, 2, 3)) + 1)).mean()
    log("parts", [focal.item(), dice.item()])
    guess = logits.argmax(1)
    log(
        "iou",
        [
            float(((guess == c) & (mask == c)).sum() / max(((guess == c) | (mask == c)).sum(), 1))
            for c in range(CLASSES)
        ],
    )
    opt.zero_grad()
    (focal + dice).backward()
    opt.step()
log("logits", net(image)[0, :, 0].tolist())
