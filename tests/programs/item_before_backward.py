"""Values are looked at before backward(): the loss, a hidden layer, a statistic of it; weights are plain tensors
that were loaded."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

w1, b1 = Tensor(normal(4, 6, seed=1)), Tensor(normal(6, seed=2))
w2 = Tensor(normal(6, 2, seed=3))
opt = nn.optim.SGD([w1, b1, w2], lr=0.05)
x, y = Tensor(normal(8, 4, seed=4)), Tensor(normal(8, 2, seed=5))
with Context(TRAINING=1):
    for step in range(6):
        opt.zero_grad()
        hidden = (x @ w1 + b1).relu()
        log("alive", int((hidden.numpy() > 0).sum()))
        out = hidden @ w2
        if out.abs().max().item() > 1e6:
            raise RuntimeError("diverged")
        loss = (out - y).square().mean()
        log("loss", loss.item())
        log("as list", out[0].tolist())
        loss.backward()
        log("gradient norms", [p.grad.square().sum().sqrt().item() for p in opt.params])
        opt.step()
log("w1", w1.numpy())
