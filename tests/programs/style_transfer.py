"""An image is the parameter: content and style (Gram matrices) of a fixed convolutional net, Adam on the pixels,
clipped each step."""

from common import log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn

filters = [Tensor(normal(6, 3, 3, 3, seed=1) / 5), Tensor(normal(8, 6, 3, 3, seed=2) / 7)]


def features(x):
    maps = []
    for f in filters:
        x = x.conv2d(f, padding=1).relu()
        maps.append(x)
        x = x.avg_pool2d()
    return maps


def gram(m):
    m = m.flatten(2)[0]
    return m @ m.T / m.shape[1]


content, style = Tensor(uniform(1, 3, 8, 8, seed=3)), Tensor(uniform(1, 3, 8, 8, seed=4))
content_maps = [m.realize() for m in features(content)]
style_grams = [gram(m).realize() for m in features(style)]
image = content.clone().realize()
opt = nn.optim.Adam([image], lr=0.05)
with Context(TRAINING=1):
    for step in range(5):
        opt.zero_grad()
        maps = features(image)
        content_loss = (maps[1] - content_maps[1]).square().mean()
        style_loss = sum(((gram(m) - g).square().mean() for m, g in zip(maps, style_grams)), Tensor(0.0))
        loss = content_loss + 10 * style_loss
        log("losses", [content_loss.item(), style_loss.item(), loss.item()])
        loss.backward()
        log("gradient", image.grad.square().sum().sqrt().item())
        opt.step()
        image.assign(image.clip(0, 1)).realize()
log("image", image.numpy(), atol=1e-5)  # Adam divides small gradients by their size
