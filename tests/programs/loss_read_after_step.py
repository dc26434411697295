"""Losses and gradients that are kept unread and read when the whole run is over: they are those of the step they
belong to."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

w = Tensor(normal(4, 4, seed=1)).is_param_(True)
opt = nn.optim.SGD([w], lr=0.1)
x = Tensor(normal(6, 4, seed=2))
losses, gradients, predictions = [], [], []
with Context(TRAINING=1):
    for _ in range(5):
        opt.zero_grad()
        out = (x @ w).tanh()
        loss = (out - 0.3).square().sum()
        loss.backward()
        losses.append(loss)
        gradients.append(w.grad)
        predictions.append(out.mean())
        opt.step()
log("losses", [loss.item() for loss in losses])
log("predictions", [p.item() for p in predictions])
log("first gradient", gradients[0].numpy())
log("last gradient", gradients[-1].numpy())
log("w", w.numpy())
