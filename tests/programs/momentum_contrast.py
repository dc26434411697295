"""Momentum contrast: a key encoder that follows by averaging, a queue of keys written as a ring inside of the captured
step at a position kept in a tensor, random projections, a prototype update by index, and a search along the gradient
that keeps and restores weights."""

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Encoder:
    def __init__(self):
        self.a, self.n, self.b = nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 4)

    def __call__(self, x):
        z = self.b(self.n(self.a(x)).silu())
        return z / (z.square().sum(-1, keepdim=True) + 1e-8).sqrt()


query, key = Encoder(), Encoder()
for e in (query, key):
    load_state_dict(e, {k: Tensor(v) for k, v in initial(get_state_dict(e)).items()}, verbose=False)
opt = nn.optim.AdamW(get_parameters(query), lr=0.01, weight_decay=0.01)
bank, at = Tensor(normal(12, 4, seed=1) * 0.5).realize(), Tensor([0]).realize()
prototypes = Tensor(normal(3, 4, seed=2)).realize()


@TinyJit
def step(a, b):
    for k, q in zip(get_parameters(key), get_parameters(query)):
        k.assign(0.9 * k.detach() + 0.1 * q.detach())
    q, k = query(a), key(b).detach()
    logits = (q * k).sum(1, keepdim=True).cat(q @ bank.detach().T, dim=1) / 0.2
    loss = logits.sparse_categorical_crossentropy(Tensor.zeros(4, dtype=dtypes.int32))
    opt.zero_grad()
    loss.backward()
    opt.step()
    places = (at + Tensor.arange(4)) % 12
    mine = (places.unsqueeze(0) == Tensor.arange(12).unsqueeze(1)).float()
    bank.assign(mine.sum(1, keepdim=True).bool().where(mine @ k, bank))
    at.assign((at + 4) % 12)
    nearest = (q.detach() @ prototypes.T).argmax(1)
    chosen = nearest.one_hot(3).float()
    count = chosen.sum(0).unsqueeze(1)
    prototypes.assign((count > 0).where(0.8 * prototypes + 0.2 * (chosen.T @ q.detach()) / count.maximum(1),
                                        prototypes))
    Tensor.realize(bank, at, prototypes, *get_parameters(key))
    return loss.realize(), nearest.realize()


with Context(TRAINING=1):
    for i in range(8):
        x = normal(4, 6, seed=10 + i)
        loss, nearest = step(Tensor(x + 0.1 * normal(4, 6, seed=40 + i)), Tensor(x + 0.1 * normal(4, 6, seed=70 + i)))
        log("loss", loss.item())
        log("nearest", nearest.numpy().astype(np.int64))
        log("at", at.item())
log("bank", bank.numpy())
log("prototypes", prototypes.numpy())
log("key encoder", key.a.weight.numpy())

x, y = Tensor(normal(20, 6, seed=100)), Tensor(normal(20, 4, seed=101))
params = get_parameters(query)
measure = TinyJit(lambda x: (query(x) - y).square().sum(1).mean().realize())
for i in range(4):
    now = (query(x) - y).square().sum(1).mean()
    grads = [g.realize() for g in now.gradient(*params)]
    saved = [p.detach().clone().realize() for p in params]
    square, rate, tries = sum(g.square().sum() for g in grads).item(), 2.0, 0
    while True:
        for p, s, g in zip(params, saved, grads):
            p.assign(s - rate * g).realize()
        value = measure(x).item()
        if value <= now.item() - 0.3 * rate * square or tries == 8:
            break
        rate, tries = rate / 2, tries + 1
    log("search", [now.item(), value, rate])
    if i == 2:
        for p, s in zip(params, saved):
            p.assign(s).realize()
log("weight", query.b.weight.numpy())
