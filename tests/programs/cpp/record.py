#!/usr/bin/env python3
"""Runs the programs of this folder in PyTorch and NumPy and writes what they must give to recorded.inc:  python
record.py > recorded.inc"""
import math

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def wave(*shape, phase=0.0, scale=1.0):
    """Numbers both languages make alike: scale * sin(0.7 i + 0.011 i i + phase), rounded to float32 once."""
    n = math.prod(shape)
    return torch.tensor([scale * math.sin(0.7 * i + 0.011 * i * i + phase) for i in range(n)],
                        dtype=torch.float64).float().reshape(shape)


def say(name, *values):
    flat = []
    for v in values:
        flat += np.asarray(v.detach() if isinstance(v, torch.Tensor) else v, dtype=np.float64).reshape(-1).tolist()
    print(f'{{"{name}", {{{", ".join(repr(x) for x in flat)}}}}},')


def line_fit():
    x, w, b = wave(32, 3), torch.zeros(3, requires_grad=True), torch.zeros((), requires_grad=True)
    y = x @ torch.tensor([1.5, -2.0, 0.5]) + 0.25
    losses = []
    for _ in range(20):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            w -= 0.1 * w.grad
            b -= 0.1 * b.grad
        w.grad = b.grad = None
    say("line_fit", losses, w, b)


def classifier(steps, optimizer):
    x, y = wave(24, 6, phase=0.3), torch.arange(24) % 3
    w1, b1, w2, b2 = wave(16, 6, phase=1, scale=0.4), torch.zeros(16), wave(3, 16, phase=2, scale=0.4), torch.zeros(3)
    params = [p.requires_grad_() for p in (w1, b1, w2, b2)]
    opt = optimizer(params)
    losses = []
    for k in range(steps):
        at = (k * 8) % 24
        loss = F.cross_entropy(F.linear(torch.relu(F.linear(x[at:at + 8], w1, b1)), w2, b2), y[at:at + 8])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, params


def classifiers():
    say("classifier_sgd", classifier(9, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))[0])
    losses, params = classifier(12, lambda p: torch.optim.Adam(p, lr=0.01))
    say("classifier_adam", losses, params[2])


def xor():
    x, y = torch.tensor([[0., 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.], [1], [1], [0]])
    w1, w2 = wave(2, 8, phase=0.5).requires_grad_(), wave(8, 1, phase=0.1).requires_grad_()
    opt = torch.optim.SGD([w1, w2], lr=0.5)
    losses = []
    for _ in range(25):
        loss = F.binary_cross_entropy_with_logits(torch.tanh(x @ w1) @ w2, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    say("xor", losses)


def convnet():
    x, y = wave(4, 1, 12, 12), torch.tensor([0, 1, 2, 3])
    conv = torch.nn.Conv2d(1, 4, 3, padding=1)
    norm, fc = torch.nn.BatchNorm2d(4), torch.nn.Linear(4 * 36, 4)
    with torch.no_grad():
        conv.weight.copy_(wave(4, 1, 3, 3, phase=0.2, scale=0.3)), conv.bias.zero_()
        fc.weight.copy_(wave(4, 144, phase=0.9, scale=0.1)), fc.bias.zero_()
    opt = torch.optim.SGD([*conv.parameters(), *norm.parameters(), *fc.parameters()], lr=0.05)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(fc(F.max_pool2d(torch.relu(norm(conv(x))), 2).flatten(1)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    norm.eval()
    say("convnet", losses, norm.running_mean, norm.running_var,
        fc(F.max_pool2d(torch.relu(norm(conv(x))), 2).flatten(1)))


def straight_through():
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s):
            ctx.save_for_backward(x, s)
            return torch.round(x / s) * s

        @staticmethod
        def backward(ctx, g):
            x, s = ctx.saved_tensors
            return g * (x.abs() < 0.8), (g * (torch.round(x / s) - x / s)).sum()

    x, s = wave(12).requires_grad_(), torch.tensor(0.25, requires_grad=True)
    y = Round.apply(x, s)
    (y * wave(12, phase=1)).sum().backward()
    say("straight_through", y, x.grad, s.grad)


def penalty():
    x, w = wave(5, 4).requires_grad_(), wave(4, phase=1).requires_grad_()
    out = torch.tanh(x @ w).sum()
    g, = torch.autograd.grad(out, x, create_graph=True)
    loss = ((g.norm(dim=1) - 1) ** 2).mean()
    loss.backward()
    say("penalty", loss, w.grad, x.grad)


def slices():
    x = torch.arange(24.).reshape(4, 6)
    a = x.clone()
    a[1:3, ::2] = -1
    a[a > 20] = 0
    a[[0, 3]] += 100
    a[:, -1] *= 2
    b = x.flip(0)[:, 1:-1]
    c = torch.where(x % 2 == 0, x, -x)[x > 12]
    d = x.masked_fill(x > 5, 5).cumsum(1)
    rows = x[torch.tensor([2, 0]), torch.tensor([1, 5])]
    say("slices", a, b, c, d, rows)


def heat():
    u = np.zeros((16, 16), dtype=np.float32)
    u[0, :] = 1
    for _ in range(50):
        n = u.copy()
        n[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        u = n
    say("heat", u[::3, 4:12], u.sum())


def matrices():
    a = wave(8, 4).double()
    q, r = torch.linalg.qr(a)
    s = torch.linalg.svdvals(a)
    b = wave(8, phase=2).double()
    x = torch.linalg.solve_triangular(r, (q.T @ b)[:, None], upper=True)[:, 0]
    m, v = a.T @ a, torch.ones(4, dtype=torch.float64)
    for _ in range(30):
        v = m @ v
        v = v / v.norm()
    say("matrices", s, x, (v @ m @ v), (r.T @ r))


def lstm():
    net = torch.nn.LSTM(3, 5, batch_first=True)
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(wave(*p.shape, phase=i, scale=0.3))
    out, (h, c) = net(wave(2, 7, 3))
    (out[:, -1] ** 2).sum().backward()
    say("lstm", out[:, -1], h, c, net.weight_hh_l0.grad)


def block():
    x = wave(2, 6, 8, scale=0.5).requires_grad_()
    qkv, out, up, down = (wave(*s, phase=i, scale=0.2).requires_grad_() for i,
                          s in enumerate([(8, 24), (8, 8), (8, 16), (16, 8)]))
    n = F.layer_norm(x, (8,))
    q, k, v = [t.reshape(2, 6, 2, 4).transpose(1, 2) for t in (n @ qkv).chunk(3, -1)]
    h = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 6, 8) @ out
    y = h + F.gelu(F.layer_norm(h, (8,)) @ up, approximate="tanh") @ down
    (y * y).mean().backward()
    say("block", y, x.grad, qkv.grad)


def images():
    raw = torch.arange(2 * 3 * 4 * 5) % 251
    x = raw.to(torch.uint8).reshape(2, 4, 5, 3).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1,
            1)
    say("images", x.mean((0, 2, 3)), x[1, 2], x.std())


def kmeans():
    points = torch.cat([wave(10, 2, scale=0.3), wave(10, 2, scale=0.3, phase=1) + 3,
                        wave(10, 2, scale=0.3, phase=2) - torch.tensor([3., -3])])
    centers = points[[0, 1, 12]].clone()
    for _ in range(6):
        nearest = ((points[:, None] - centers[None]) ** 2).sum(-1).argmin(1)
        hot = F.one_hot(nearest, 3).float()
        centers = (hot.T @ points) / hot.sum(0)[:, None]
    say("kmeans", centers, nearest)


def mixed():
    a, b = wave(6, 5).half(), wave(5, 4, phase=1).half()
    i = torch.tensor([200, 100, 7], dtype=torch.uint8)
    say("mixed", (a.float() @ b.float()).half().float(), (i + 100).int(), (i.int() + 100), i.float().mean(), (i / 2),
        (i // 3).int())


for program in (line_fit, classifiers, xor, convnet, straight_through, penalty, slices, heat, matrices, lstm, block,
                images, kmeans, mixed):
    program()
