"""Gradients clipped to a global norm by hand, the norm printed at each step; then the same in a jitted step."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

x, y = Tensor(normal(12, 4, seed=1)).realize(), Tensor(normal(12, 1, seed=2)).realize() * 5


def build():
    net = [nn.Linear(4, 9), Tensor.relu, nn.Linear(9, 1)]
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    return net, nn.optim.SGD(get_parameters(net), lr=0.1)


def step(net, opt, x):
    opt.zero_grad()
    loss = (x.sequential(net) - y).square().mean()
    loss.backward()
    norm = sum((p.grad.square().sum() for p in opt.params), Tensor(0.0)).sqrt()
    scale = (1.0 / (norm + 1e-6)).minimum(1.0)
    for p in opt.params:
        p.grad = p.grad * scale
    opt.step()
    return loss, norm


with Context(TRAINING=1):
    net, opt = build()
    for _ in range(5):
        loss, norm = step(net, opt, x)
        log("norm", norm.item())
        log("loss", loss.item())
    log("weight", net[0].weight.numpy())

    net, opt = build()
    jitted = TinyJit(lambda x: [t.realize() for t in step(net, opt, x)])
    for _ in range(5):
        loss, norm = jitted(x)
        log("norm", norm.item())
        log("loss", loss.item())
    log("weight", net[0].weight.numpy())
