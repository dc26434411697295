"""Muon on the matrices, AdamW on the rest, as language models are trained; eager and jitted."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

x, y = Tensor(normal(10, 5, seed=1)).realize(), Tensor(normal(10, 4, seed=2)).realize()


def run(jitted):
    w1, g, w2 = Tensor(normal(5, 8, seed=3)), Tensor(normal(8, seed=4)), Tensor(normal(8, 4, seed=5))
    muon = nn.optim.Muon([w1, w2], lr=0.05, momentum=0.9, weight_decay=0.1)
    adam = nn.optim.AdamW([g], lr=0.01, weight_decay=0.0)

    def step(x, y):
        muon.zero_grad()
        adam.zero_grad()
        loss = (((x @ w1).tanh() * g) @ w2 - y).square().mean()
        loss.backward()
        muon.step()
        adam.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    for _ in range(5):
        log("loss", step(x, y).item())
    log("w1", w1.numpy())
    log("g", g.numpy())


with Context(TRAINING=1):
    run(False)
    run(True)
