"""LARS with momentum beside SGD for the biases, joined in an OptimizerGroup; eager and jitted."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.optim import OptimizerGroup

x, y = Tensor(normal(10, 5, seed=1)).realize(), Tensor(normal(10, 2, seed=2)).realize()


def run(jitted):
    w1, b1, w2 = Tensor(normal(5, 7, seed=3)), Tensor(normal(7, seed=4)), Tensor(normal(7, 2, seed=5))
    opt = OptimizerGroup(
        nn.optim.LARS([w1, w2], lr=2.0, momentum=0.9, weight_decay=1e-2, tcoef=0.02), nn.optim.SGD([b1], lr=0.05)
    )

    def step():
        opt.zero_grad()
        loss = ((x @ w1 + b1).relu() @ w2 - y).square().mean()
        loss.backward()
        opt.step()
        return loss

    step = TinyJit(step) if jitted else step
    for _ in range(6):
        log("loss", step().item())
    log("w1", w1.numpy())
    log("b1", b1.numpy())


with Context(TRAINING=1):
    run(False)
    run(True)
