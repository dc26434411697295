"""Batches come from generators that make tensors lazily, one ahead; a scheduler is a generator, metrics are
gathered by another."""

from collections import deque

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


def samples():
    i = 0
    while True:
        x = Tensor(normal(6, 3, seed=i))
        yield x, (x.sum(axis=1, keepdim=True) * 0.5).tanh()
        i += 1


def prefetch(iterable, ahead=2):
    waiting = deque()
    for item in iterable:
        waiting.append([t.realize() for t in item])
        if len(waiting) > ahead:
            yield waiting.popleft()


def rates():
    rate = 0.2
    while True:
        yield rate
        rate *= 0.8


def mean():
    total, count, value = 0.0, 0, None
    while True:
        total, count = total + (yield value), count + 1
        value = total / count


net = [nn.Linear(3, 6), Tensor.sigmoid, nn.Linear(6, 1)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.2)
average = mean()
next(average)
with Context(TRAINING=1):
    for step, ((x, y), rate) in enumerate(zip(prefetch(samples()), rates())):
        if step == 6:
            break
        opt.lr.assign(Tensor([rate])).realize()
        opt.zero_grad()
        loss = (x.sequential(net) - y).square().mean()
        loss.backward()
        opt.step()
        log("average", average.send(loss.item()))
log("rate", opt.lr.item())
log("weight", net[0].weight.numpy())
