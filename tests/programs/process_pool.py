"""A hyperparameter search in worker processes: multiprocessing with fork and with spawn, tensors sent to workers
and back by pickling."""

import multiprocessing

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn


def trial(job):
    rate, x = job
    w = Tensor(normal(4, 2, seed=1))
    y = Tensor(normal(9, 2, seed=2))
    opt = nn.optim.Adam([w], lr=rate)
    with Context(TRAINING=1):
        for _ in range(5):
            opt.zero_grad()
            loss = (x @ w - y).square().mean()
            loss.backward()
            opt.step()
    return loss.item(), w.realize()


if __name__ == "__main__":
    x = Tensor(normal(9, 4, seed=3)).realize()
    (x @ x.T).sum().item()
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            answers = pool.map(trial, [(rate, x) for rate in (0.01, 0.1, 0.5)])
        log("losses", [loss for loss, _ in answers])
        best = min(answers, key=lambda a: a[0])[1]
        log("best", (x @ best).numpy())
