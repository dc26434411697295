"""Linear regression three ways: normal equations solved by elimination in place, gradient descent by hand, an
nn.Linear."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

X, true = normal(30, 3, seed=1), normal(3, seed=2)
x, y = Tensor(X), Tensor(X @ true + 0.1 * normal(30, seed=3) + 0.5)
design = Tensor.cat(x, Tensor.ones(30, 1), dim=1)

system = Tensor.cat(design.T @ design, (design.T @ y).unsqueeze(1), dim=1).contiguous().realize()
for i in range(4):
    system[i] = system[i] / system[i, i]
    for j in range(4):
        if j != i:
            system[j] = system[j] - system[i] * system[j, i]
log("normal equations", system[:, 4].tolist())

w, b = Tensor.zeros(3), Tensor.zeros(1)
for step in range(8):
    error = x @ w + b - y
    gw, gb = 2 * (x.T @ error) / 30, 2 * error.mean()
    w, b = (w - 0.2 * gw).realize(), (b - 0.2 * gb).realize()
    log("by hand", error.square().mean().item())
log("w", w.tolist() + b.tolist())

layer = nn.Linear(3, 1)
layer.weight.assign(Tensor.zeros(1, 3))
layer.bias.assign(Tensor.zeros(1))
opt = nn.optim.SGD([layer.weight, layer.bias], lr=0.2)
with Context(TRAINING=1):
    for step in range(8):
        opt.zero_grad()
        loss = (layer(x).squeeze(1) - y).square().mean()
        loss.backward()
        opt.step()
        log("layer", loss.item())
log("layer", layer.weight.tolist()[0] + layer.bias.tolist())
residual = y - layer(x).squeeze(1)
log("r squared", (1 - residual.square().sum() / (y - y.mean()).square().sum()).item())
