"""Values kept unread while weights change: predictions and copies made before steps, eager and jitted, differences
of weights, a cache."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(3, 5), Tensor.tanh, nn.Linear(5, 1)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.2)
x, y = Tensor(normal(8, 3, seed=1)).realize(), Tensor(normal(8, 1, seed=2)).realize()
before = net[0].weight.clone()
predictions, losses = [], []
with Context(TRAINING=1):
    for step in range(4):
        predictions.append(x.sequential(net))
        opt.zero_grad()
        loss = (predictions[-1] - y).square().mean()
        losses.append(loss)
        loss.backward()
        opt.step()
    log("predictions", [p.sum().item() for p in predictions])
    log("losses", [loss.item() for loss in losses])
    log("moved", (net[0].weight - before).square().sum().item())

    @TinyJit
    def step(x, y):
        opt.zero_grad()
        loss = (x.sequential(net) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.realize()

    unread = []
    for i in range(6):
        unread.append(x.sequential(net).mean())
        loss = step(Tensor(normal(8, 3, seed=10 + i)).realize(), y)
        log("jitted", loss.item())
    log("unread", [u.item() for u in unread])

cache = Tensor.zeros(4, 3).contiguous().realize()
counts = Tensor.zeros(3)
for i in range(4):
    cache[i].assign(Tensor(normal(3, seed=30 + i))).realize()
    largest = cache[: i + 1].sum(axis=0).argmax()
    counts = (Tensor.arange(3) == largest).where(counts + 1, counts)
log("counts", counts.tolist())
