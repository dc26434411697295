"""Population-based training: members train in threads of their own with a captured step each, the worst copies the best
one's weights and changes its rate; gradients of shards computed by forked workers are averaged by the parent; a
producer thread feeds a queue to a captured step."""

import os
import queue
import threading

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 1)

    def __call__(self, x):
        return self.b(self.a(x).tanh())


class Member:
    def __init__(self, number):
        self.net = Net()
        values = initial(get_state_dict(self.net))
        load_state_dict(self.net, {k: Tensor(v * np.float32(1 + 0.2 * number)) for k, v in values.items()},
                        verbose=False)
        self.opt = nn.optim.SGD(get_parameters(self.net), lr=0.05 * (number + 1), momentum=0.5)
        self.number, self.score, self.losses = number, 0.0, []
        self.step = TinyJit(self.plain)

    def plain(self, x, y):
        self.opt.zero_grad()
        loss = (self.net(x) - y).square().mean()
        loss.backward()
        self.opt.step()
        return loss.realize()

    def work(self, generation):
        with Context(TRAINING=1):
            for i in range(4):
                seed = 100 * generation + 10 * self.number + i
                self.losses.append(self.step(Tensor(normal(6, 3, seed=seed)),
                                             Tensor(normal(6, 1, seed=seed + 1))).item())
            self.score = (self.net(Tensor(normal(20, 3, seed=5))) - Tensor(normal(20, 1,
                    seed=6))).square().mean().item()


members = [Member(i) for i in range(3)]
for generation in range(3):
    threads = [threading.Thread(target=m.work, args=(generation,)) for m in members]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    log("scores", [m.score for m in members])
    best, worst = min(members, key=lambda m: m.score), max(members, key=lambda m: m.score)
    load_state_dict(worst.net, get_state_dict(best.net), verbose=False)
    worst.opt.lr.assign(best.opt.lr * 1.2).realize()
for m in members:
    log("losses", m.losses)

net = best.net


def shard(rank):
    x, y = Tensor(normal(8, 3, seed=rank)), Tensor(normal(8, 1, seed=10 + rank))
    loss = (net(x) - y).square().mean()
    return np.concatenate([g.numpy().ravel() for g in loss.gradient(*get_parameters(net))])


for step in range(3):
    gathered = []
    for rank in range(2):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(write, shard(rank + 2 * step).tobytes())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as f:
            gathered.append(np.frombuffer(f.read(), np.float32))
        os.waitpid(pid, 0)
    mean, at = np.mean(gathered, axis=0), 0
    log("mean gradient", mean)
    for p in get_parameters(net):
        p.assign(p - 0.1 * Tensor(mean[at : at + p.numel()].reshape(p.shape))).realize()
        at += p.numel()

q = queue.Queue(maxsize=2)
producer = threading.Thread(target=lambda: [q.put((Tensor(normal(6, 3, seed=k)) * 2, Tensor(normal(6, 1, seed=k))))
                                            for k in range(6)] and q.put(None))
producer.start()
with Context(TRAINING=1):
    while (item := q.get()) is not None:
        log("queued", best.step(item[0].contiguous().realize(), item[1]).item())
producer.join()
log("weight", net.a.weight.numpy())
