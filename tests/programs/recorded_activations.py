"""Hooks by subclassing layers: activations and their gradients are kept and read after backward(), layers frozen and
thawed while training goes on, gradients scaled on the way back, parameters shared between two paths, a dataclass of
tensors updated functionally, and everything printed in between."""

import dataclasses

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Watched(nn.Linear):
    def __call__(self, x):
        self.seen = super().__call__(x)
        return self.seen.tanh()


class Net:
    def __init__(self):
        self.a, self.b, self.c = Watched(4, 6), Watched(6, 6), nn.Linear(6, 2)

    def __call__(self, x):
        h = self.a(x)
        return self.c(self.b(h) + self.b(h * 0.5))


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
x, y = Tensor(normal(9, 4, seed=1)), Tensor(normal(9, 2, seed=2))
everything = get_parameters(net)
head = nn.optim.SGD(get_parameters(net.c), lr=0.1)
body = nn.optim.Adam(get_parameters([net.a, net.b]), lr=0.02)
both = nn.optim.OptimizerGroup(head, body)
with Context(TRAINING=1):
    for i in range(7):
        frozen = 2 <= i < 5
        both.zero_grad()
        out = net(x)
        text = repr(out.shape)
        log("shape", text)
        activations = net.a.seen.numpy()
        loss = (out - y).abs().mean() + 0.01 * sum(p.square().sum() for p in everything)
        log("loss", loss.item())
        (watched,) = loss.gradient(net.a.seen)
        log("activation", activations.mean(0))
        log("its gradient", watched.numpy().mean(0), atol=2e-6)
        loss.backward()
        log("norms", [p.grad.square().sum().sqrt().item() for p in everything])
        (head if frozen else both).step()
log("weights", np.concatenate([p.numpy().ravel() for p in everything]))


@dataclasses.dataclass
class State:
    w: Tensor
    b: Tensor
    step: int = 0

    def items(self):
        return [self.w, self.b]


def update(s, x, y):
    loss = ((x @ s.w + s.b).sigmoid() - y).square().mean()
    gw, gb = loss.gradient(s.w, s.b)
    scale = 1.0 / np.sqrt(1 + s.step)
    return dataclasses.replace(s, w=(s.w - scale * gw).detach(), b=(s.b - np.float32(scale) * gb).detach(),
                               step=s.step + 1), loss


state, history = State(Tensor(normal(4, 2, seed=3)), Tensor.zeros(2)), []
for i in range(12):
    state, loss = update(state, x, y)
    history.append((state, loss))
    if i == 6:
        state = history[2][0]
log("losses", [loss.item() for _, loss in history])
log("restarted", [s.b.tolist() for s, _ in history[::3]])
log("w", Tensor.stack(*state.items()[0]).numpy())
