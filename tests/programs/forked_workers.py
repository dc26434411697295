"""os.fork after tensors were computed: parent and children go on computing, training and replaying a jitted
function, results come by pipes."""

import json
import os

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

w = Tensor(normal(3, 3, seed=1))
x = Tensor(normal(5, 3, seed=2)).realize()
forward = TinyJit(lambda x: (x @ w).tanh().sum().realize())
log("before", [forward((x + i).realize()).item() for i in range(4)])


def train(seed):
    opt = nn.optim.SGD([w], lr=0.1)
    y = Tensor(normal(5, 3, seed=seed))
    losses = []
    with Context(TRAINING=1):
        for _ in range(3):
            opt.zero_grad()
            loss = (x @ w - y).square().mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
    return losses + [forward(x).item()]


pipes = []
for child in range(3):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(train(10 + child)).encode())
        except Exception as e:
            os.write(write, json.dumps(f"{type(e).__name__}: {e}").encode())
        os._exit(0)
    os.close(write)
    pipes.append((pid, read))
log("parent", train(20))
for pid, read in pipes:
    answer = json.loads(os.read(read, 10000))
    log("status", os.waitpid(pid, 0)[1])
    log("child", answer)
log("w", w.numpy())
