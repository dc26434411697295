import torch
import torch.nn.functional as F
from common import log, normal, uniform

filters = [torch.tensor(normal(6, 3, 3, 3, seed=1) / 5), torch.tensor(normal(8, 6, 3, 3, seed=2) / 7)]


def features(x):
    maps = []
    for f in filters:
        x = F.conv2d(x, f, padding=1).relu()
        maps.append(x)
        x = F.avg_pool2d(x, 2)
    return maps


def gram(m):
    m = m.flatten(2)[0]
    return m @ m.T / m.shape[1]


content, style = torch.tensor(uniform(1, 3, 8, 8, seed=3)), torch.tensor(uniform(1, 3, 8, 8, seed=4))
content_maps, style_grams = features(content), [gram(m) for m in features(style)]
image = content.clone().requires_grad_()
opt = torch.optim.Adam([image], lr=0.05)
for step in range(5):
    opt.zero_grad()
    maps = features(image)
    content_loss = (maps[1] - content_maps[1]).square().mean()
    style_loss = sum((gram(m) - g).square().mean() for m, g in zip(maps, style_grams))
    loss = content_loss + 10 * style_loss
    log("losses", [content_loss.item(), style_loss.item(), loss.item()])
    loss.backward()
    log("gradient", image.grad.norm().item())
    opt.step()
    image.data.clamp_(0, 1)
log("image", image.tolist())
