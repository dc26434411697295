"""Gradients through training: per-parameter rates and the momentum of an inner loop of six steps are learned by
differentiating through it, losses of the inner steps printed on the way; Reptile with deep copies; hypergradients of a
weight decay checked by differences."""

import copy

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

x, y = Tensor(normal(16, 3, seed=1)), Tensor(normal(16, 2, seed=2))
vx, vy = Tensor(normal(16, 3, seed=3)), Tensor(normal(16, 2, seed=4))
w0, b0 = Tensor(normal(3, 2, seed=5)), Tensor(normal(2, seed=6))


def inner(rates, momentum, decay=None, show=False):
    w, b = w0, b0
    mw = mb = 0.0
    for i in range(6):
        loss = ((x @ w + b).tanh() - y).square().mean()
        if decay is not None:
            loss = loss + decay * w.square().sum()
        if show and i % 2 == 0:
            log("inner", loss.item())
        gw, gb = loss.gradient(w, b)
        mw, mb = momentum * mw + gw, momentum * mb + gb
        w, b = w - rates[0].exp() * mw, b - rates[1].exp() * mb
    return ((vx @ w + b).tanh() - vy).square().mean()


rates, momentum = [Tensor([-1.0]), Tensor([-2.0])], Tensor([0.5])
opt = nn.optim.Adam([*rates, momentum], lr=0.1)
with Context(TRAINING=1):
    for i in range(4):
        loss = inner(rates, momentum.sigmoid(), show=True)
        opt.zero_grad()
        loss.backward()
        log("gradients", [p.grad.item() for p in opt.params])
        opt.step()
        log("outer", loss.item())
decay = Tensor(0.05).clone()
value = inner(rates, momentum.sigmoid(), decay)
log("hypergradient", value.gradient(decay)[0].item(), rtol=1e-3)


class Net:
    def __init__(self):
        self.layers = [nn.Linear(1, 8), Tensor.tanh, nn.Linear(8, 1)]

    def __call__(self, x):
        return x.sequential(self.layers)


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
for task in range(4):
    fast = copy.deepcopy(net)
    inner_opt = nn.optim.SGD(get_parameters(fast), lr=0.1)
    tx = Tensor(normal(10, 1, seed=20 + task))
    with Context(TRAINING=1):
        for _ in range(3):
            loss = (fast(tx) - (tx + task).sin()).square().mean()
            inner_opt.zero_grad()
            loss.backward()
            inner_opt.step()
        log("task", loss.item())
    for slow, new in zip(get_parameters(net), get_parameters(fast)):
        slow += 0.4 * (new - slow).detach()
    log("slow", net.layers[0].weight.numpy())
