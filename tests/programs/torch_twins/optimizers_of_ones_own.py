import torch
import torch.nn.functional as F
from common import initial, log, normal


def lion(p, g, s):
    m = s.setdefault("m", torch.zeros_like(p))
    u = (0.9 * m + 0.1 * g).sign()
    m.copy_(0.99 * m + 0.01 * g)
    return u + 0.1 * p


def adafactor(p, g, s):
    if g.ndim == 1:
        s["v"] = 0.8 * s.get("v", 0) + 0.2 * (g.square() + 1e-8)
        u = g / s["v"].sqrt()
    else:
        r = s["r"] = 0.8 * s.get("r", 0) + 0.2 * (g.square() + 1e-8).mean(1)
        c = s["c"] = 0.8 * s.get("c", 0) + 0.2 * (g.square() + 1e-8).mean(0)
        u = g / (r.unsqueeze(1) * c / r.mean()).sqrt()
    return u / u.square().mean().sqrt().clamp(min=1.0)


def diagonal(p, g, s):
    f = s.get("f", torch.zeros_like(p))
    s["f"] = f + (g.square() - f) * 0.3
    return g / (s["f"] + 0.01)


def shampoo(p, g, s):
    if g.ndim == 1:
        return g
    out = g
    for side in (0, 1):
        m = g if side == 0 else g.T
        s[side] = s.get(side, 0) + m @ m.T
        a = s[side] + 0.1 * torch.eye(m.shape[0])
        norm = a.square().sum().sqrt()
        y, z, eye = a / norm, torch.eye(m.shape[0]), torch.eye(m.shape[0])
        for _ in range(8):
            t = 0.5 * (3 * eye - z @ y)
            y, z = y @ t, t @ z
        root = z / norm.sqrt()
        out = root @ out if side == 0 else out @ root
    return out


for kind, name, lr in ((lion, "Lion", 0.02), (adafactor, "Adafactor", 0.05), (diagonal, "Diagonal", 0.05),
                       (shampoo, "Shampoo", 0.1)):
    for _ in range(2):
        net = torch.nn.Module()
        net.a, net.b = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)
        net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
        state, rate, losses = {p: {} for p in net.parameters()}, lr, []
        for i in range(7):
            net.zero_grad()
            out = net.b(F.gelu(net.a(torch.tensor(normal(12, 4, seed=i))), approximate="tanh"))
            loss = (out - torch.tensor(normal(12, 2, seed=40 + i))).square().mean()
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= rate * kind(p, p.grad, state[p])
            losses.append(loss.item())
            if i == 3:
                rate *= 0.5
        log(name, losses)
        log("weight", net.a.weight.tolist())
