"""An LSTM written by hand, trained on pieces of a long sequence: the state is carried on detached, once eagerly, once
through a jitted step that takes and returns it, with a reset of the state in the middle."""

from common import log, normal
from tinygrad_cpp import Tensor, TinyJit
from tinygrad_cpp.helpers import Context

H, L = 6, 5
data = Tensor(normal(60, 2, 3, seed=1))


class Cell:
    def __init__(self):
        self.wx, self.wh, self.b = (Tensor(normal(*s, seed=i) * 0.3) for i,
                                    s in enumerate([(3, 4 * H), (H, 4 * H), (4 * H,)]))
        self.out = Tensor(normal(H, 3, seed=9) * 0.3)

    def params(self):
        return [self.wx, self.wh, self.b, self.out]

    def step(self, x, h, c):
        i, f, g, o = (x @ self.wx + h @ self.wh + self.b).chunk(4, dim=1)
        c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def piece(cell, x, y, h, c):
    loss = 0
    for t in range(L):
        h, c = cell.step(x[t], h, c)
        loss = loss + (h @ cell.out - y[t]).square().mean()
    return loss / L, h, c


def eager():
    cell = Cell()
    h = c = Tensor.zeros(2, H)
    for k in range(0, 55, L):
        loss, h, c = piece(cell, data[k : k + L], data[k + 1 : k + L + 1], h, c)
        grads = loss.gradient(*cell.params())
        for p, g in zip(cell.params(), grads):
            p.assign(p.detach() - 0.2 * g)
        Tensor.realize(*cell.params())
        h, c = h.detach(), c.detach()
        log("loss", loss.item())
        if k == 25:
            h = Tensor.zeros_like(h)
    log("state", h.numpy())
    log("weight", cell.wh.numpy())


def jitted():
    cell = Cell()

    @TinyJit
    def train(x, y, h, c):
        loss, h, c = piece(cell, x, y, h, c)
        for p in cell.params():
            p.grad = None
        loss.backward()
        for p in cell.params():
            p.assign(p.detach() - 0.2 * p.grad)
        return Tensor.realize(loss, h.detach(), c.detach(), *cell.params()), h.detach().realize(), c.detach().realize()

    h, c = Tensor.zeros(2, H).contiguous().realize(), Tensor.zeros(2, H).contiguous().realize()
    for k in range(0, 55, L):
        loss, h, c = train(data[k : k + L].contiguous().realize(), data[k + 1 : k + L + 1].clone().realize(), h, c)
        log("loss", loss.item())
        if k == 25:
            h = Tensor.zeros_like(h).contiguous().realize()
    log("state", h.numpy())
    log("weight", cell.wh.numpy())


with Context(TRAINING=1):
    eager()
    jitted()
