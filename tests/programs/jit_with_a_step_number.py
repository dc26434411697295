"""A jitted step that is told the number of the step, gradients and weights read after each call; calls with the same
number again in between."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

w, b = Tensor(normal(4, 2, seed=1)), Tensor(normal(2, seed=2))
opt = nn.optim.SGD([w, b], lr=0.1, momentum=0.9)


@TinyJit
def step(x, number):
    opt.zero_grad()
    loss = (x @ w + b).tanh().square().mean()
    loss.backward()
    opt.step()
    return loss.realize()


with Context(TRAINING=1):
    for i, number in enumerate([0, 1, 2, 3, 3, 3, 4, 5, 5, 0]):
        log("loss", step(Tensor(normal(5, 4, seed=10 + i)).realize(), number).item())
        log("gradient", b.grad.tolist())
        log("norm", w.grad.square().sum().sqrt().item())
        log("b", b.tolist())
log("w", w.numpy())
