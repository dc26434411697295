"""Four threads train models of their own at once, a fifth evaluates one jitted function that all share, a producer
prepares batches."""

import queue
import threading

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

results, shared, errors = {}, {}, []
double = TinyJit(lambda x: (x * 2 + 1).realize())
lock = threading.Lock()


def train(seed):
    try:
        w = Tensor(normal(4, 2, seed=seed))
        opt = nn.optim.SGD([w], lr=0.1, momentum=0.9)
        x, y = Tensor(normal(10, 4, seed=seed + 10)).realize(), Tensor(normal(10, 2, seed=seed + 20)).realize()

        @TinyJit
        def step(x, y):
            opt.zero_grad()
            loss = (x @ w - y).square().mean()
            loss.backward()
            opt.step()
            return loss.realize()

        with Context(TRAINING=1):
            losses = [step(x, y).item() for _ in range(6)]
        with lock:
            shared[seed] = [double(Tensor([float(seed + i)]).realize()).item() for i in range(4)]
        results[seed] = losses, w.tolist()
    except Exception as e:
        errors.append(f"{type(e).__name__}: {e}")


threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
batches = queue.Queue(2)
producer = threading.Thread(
    target=lambda: [batches.put(Tensor(normal(6, seed=40 + i)).exp().realize()) for i in range(5)]
)
for t in [*threads, producer]:
    t.start()
log("sums of batches", [batches.get().sum().item() for _ in range(5)])
for t in [*threads, producer]:
    t.join()
log("errors", "; ".join(errors))
for seed in range(4):
    losses, w = results[seed]
    log("losses", losses)
    log("w", w)
    log("shared", shared[seed])
