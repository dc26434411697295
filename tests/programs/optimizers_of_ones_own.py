"""Lion, Adafactor, a diagonal natural gradient and Shampoo (coupled Newton iterations for roots) written as classes
over p.grad and assign, each eagerly and jitted; state in dicts keyed by tensor, rates changed in the middle."""

from common import initial, log, normal
from tinygrad_cpp import Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Base:
    def __init__(self, params, lr):
        self.params, self.lr, self.state = params, Tensor([lr]).realize(), {}

    def zero(self, p, key, shape=None):
        if (p, key) not in self.state:
            self.state[p, key] = Tensor.zeros(*(shape or p.shape)).contiguous().realize()
        return self.state[p, key]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        for p in self.params:
            p.assign(p.detach() - self.lr * self.update(p, p.grad.detach()))
        Tensor.realize(*self.params, *self.state.values())


class Lion(Base):
    def update(self, p, g):
        m = self.zero(p, "m")
        u = (0.9 * m + 0.1 * g).sign()
        m.assign(0.99 * m + 0.01 * g)
        return u + 0.1 * p.detach()


class Adafactor(Base):
    def update(self, p, g):
        if g.ndim == 1:
            v = self.zero(p, "v")
            v.assign(0.8 * v + 0.2 * (g.square() + 1e-8))
            u = g / v.sqrt()
        else:
            r, c = self.zero(p, "r", (g.shape[0],)), self.zero(p, "c", (g.shape[1],))
            r.assign(0.8 * r + 0.2 * (g.square() + 1e-8).mean(1))
            c.assign(0.8 * c + 0.2 * (g.square() + 1e-8).mean(0))
            u = g / (r.unsqueeze(1) * c / r.mean()).sqrt()
        return u / (u.square().mean().sqrt()).maximum(1.0)


class Diagonal(Base):
    def update(self, p, g):
        f = self.zero(p, "f")
        f += (g.square() - f) * 0.3
        return g / (f + 0.01)


class Shampoo(Base):
    def update(self, p, g):
        if g.ndim == 1:
            return g
        out = g
        for side in (0, 1):
            m = g if side == 0 else g.T
            s = self.zero(p, side, (m.shape[0], m.shape[0]))
            s.assign(s + m @ m.T)
            a = s + 0.1 * Tensor.eye(m.shape[0])
            norm = a.square().sum().sqrt()
            y, z, eye = a / norm, Tensor.eye(m.shape[0]), Tensor.eye(m.shape[0])
            for _ in range(8):
                t = 0.5 * (3 * eye - z @ y)
                y, z = y @ t, t @ z
            root = z / norm.sqrt()
            out = root @ out if side == 0 else out @ root
        return out


class Net:
    def __init__(self):
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

    def __call__(self, x):
        return self.b(self.a(x).gelu())


for kind, lr in ((Lion, 0.02), (Adafactor, 0.05), (Diagonal, 0.05), (Shampoo, 0.1)):
    for jit in (False, True):
        net = Net()
        load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
        opt = kind(get_parameters(net), lr)

        def step(x, y):
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            opt.step()
            return loss.realize()

        run = TinyJit(step) if jit else step
        losses = []
        for i in range(7):
            losses.append(run(Tensor(normal(12, 4, seed=i)), Tensor(normal(12, 2, seed=40 + i))).item())
            if i == 3:
                opt.lr.assign(opt.lr * 0.5).realize()
        log(kind.__name__, losses)
        log("weight", net.a.weight.numpy())
