"""Sharpness-aware steps: weights are moved along the gradient in place, the gradient is taken there and the move
undone; with lookahead weights every third step, and projected gradients of two conflicting losses."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def __call__(self, x):
        return self.b(self.a(x).tanh())


def setup():
    net = Net()
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    params = get_parameters(net)
    return net, params, nn.optim.SGD(params, lr=0.2, momentum=0.9, nesterov=True)


def run(jit):
    net, params, opt = setup()
    slow = [p.detach().clone().realize() for p in params]

    def step(x, y):
        opt.zero_grad()
        first = (net(x) - y).square().mean()
        first.backward()
        norm = Tensor.stack(*[p.grad.square().sum() for p in params]).sum().sqrt()
        moves = [(0.1 * p.grad / (norm + 1e-12)).realize() for p in params]
        for p, m in zip(params, moves):
            p += m
        Tensor.realize(*params)
        opt.zero_grad()
        second = (net(x) - y).square().mean()
        second.backward()
        for p, m in zip(params, moves):
            p -= m
        opt.step()
        return first.realize(), second.realize(), norm.realize()

    train = TinyJit(step) if jit else step
    for i in range(7):
        out = train(Tensor(normal(10, 4, seed=i)).realize(), Tensor(normal(10, 2, seed=50 + i)).realize())
        log("losses and norm", [o.item() for o in out])
        if i % 3 == 2:
            for p, s in zip(params, slow):
                s.assign(s + 0.5 * (p.detach() - s)).realize()
                p.assign(s.clone()).realize()
            log("slow", slow[1].numpy())
    log("weight", net.a.weight.numpy())


def conflicting():
    net, params, opt = setup()
    for i in range(5):
        x, y = Tensor(normal(6, 4, seed=i)), Tensor(normal(6, 2, seed=20 + i))
        out = net(x)
        losses = [(out[:, 0] - y[:, 0]).square().mean(), (out[:, 1] + y[:, 0]).abs().mean()]
        grads = [loss.gradient(*params) for loss in losses]
        dots = [sum((a * b).sum() for a, b in zip(*grads)).item(),
                *(sum((a * a).sum() for a in g).item() for g in grads)]
        log("dots", dots)
        if dots[0] < 0:
            grads = [
                [a - dots[0] / dots[2] * b for a, b in zip(*grads)],
                [b - dots[0] / dots[1] * a for a, b in zip(*grads)],
            ]
        opt.zero_grad()
        for p, a, b in zip(params, *grads):
            p.grad = a + b
        opt.step()
        log("losses", [loss.item() for loss in losses])
    log("weight", net.a.weight.numpy())


with Context(TRAINING=1):
    run(False)
    run(True)
    conflicting()
