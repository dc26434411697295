"""SGD plain, with momentum, Nesterov's momentum and weight decay: eager steps and a jitted step from the same start."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

x, y = Tensor(normal(9, 4, seed=1)).realize(), Tensor(normal(9, 3, seed=2)).realize()


def run(jitted, **options):
    w, b = Tensor(normal(4, 3, seed=3)), Tensor(normal(3, seed=4))
    opt = nn.optim.SGD([w, b], **options)

    def step(x, y):
        opt.zero_grad()
        loss = ((x @ w + b) - y).square().mean().backward()
        return loss.realize(*opt.schedule_step())

    step = TinyJit(step) if jitted else step
    losses = [step(x, y).item() for _ in range(6)]
    log("losses", losses)
    log("w", w.numpy())
    log("b", b.numpy())


with Context(TRAINING=1):
    for jitted in (False, True):
        run(jitted, lr=0.1)
        run(jitted, lr=0.05, momentum=0.9)
        run(jitted, lr=0.05, momentum=0.9, nesterov=True)
        run(jitted, lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True)
