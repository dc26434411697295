"""A training loop of an older tinygrad: requires_grad=True, `with Tensor.train()`, evaluation under
Tensor.no_grad()."""

from common import log, normal
from tinygrad_cpp import Tensor, nn

w = Tensor(normal(6, 3, seed=1), requires_grad=True)
b = Tensor.zeros(3, requires_grad=True)
x, target = Tensor(normal(16, 6, seed=2)), Tensor(normal(16, 3, seed=3))
opt = nn.optim.SGD([w, b], lr=0.05)
for epoch in range(5):
    with Tensor.train():
        opt.zero_grad()
        loss = ((x @ w + b).gelu() - target).square().mean()
        loss.backward()
        opt.step()
    log("loss", loss.item())
    log("gradients", [w.grad.square().sum().sqrt().item(), b.grad.square().sum().sqrt().item()])
    with Tensor.no_grad():
        log("validation", ((x @ w + b).gelu() - target).abs().max().item())
log("w", w.numpy())
